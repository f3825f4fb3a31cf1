//! Workers in Python and Node through `Delivery/Consume`: one is killed, the others go on, and
//! the same checker judges what all of them wrote down.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use seriatim::{
    client::{Producer, ProducerOptions},
    grpc::pb::{self, consume_request::Request, delivery_client::DeliveryClient},
    store::{GroupKeys, PartitionId},
};
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::{
    producer::{event, is_success},
    sidecar::{Sidecar, eventually},
    streams,
    support::{Random, number_from_env, redis_server},
    workers::wait_until_done,
};

const CONFIG: &str = "[delivery]\nlease_ms = 2000\nrenew_ms = 300\nretry_base_ms = 100\nunsafe_retry = true\n\
                      [topics.jobs]\npartitions = 32\n";
const EVENTS: u64 = 5;

struct Client {
    child: Child,
    journal: PathBuf,
}

impl Client {
    fn start(language: &str, sidecar: &Sidecar, folder: &Path, name: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let journal = folder.join(format!("{name}.jsonl"));
        let (program, script) = match language {
            "python" => (root.join("target/clients/venv/bin/python"), "tests/clients/consume.py"),
            "node" => (PathBuf::from("node"), "tests/clients/consume.js"),
            other => panic!("there is no client in {other}"),
        };
        let child = Command::new(program)
            .arg(script)
            .args(["--target", &sidecar.grpc.to_string(), "--topic", "jobs", "--group", "storage"])
            .args(["--consumer", name, "--in-flight", "32", "--handler-ms", "20", "--nack-percent", "1"])
            .arg("--journal")
            .arg(&journal)
            .current_dir(root)
            .env("NODE_PATH", root.join("target/clients/node_modules"))
            .env("GRPC_VERBOSITY", "ERROR")
            .stdin(Stdio::null())
            .spawn()
            .expect("clients are needed: run `make test`, which installs them (scripts/install-clients)");
        Client { child, journal }
    }

    fn handled(&self) -> usize {
        fs::read_to_string(&self.journal).unwrap_or_default().matches("\"acked\"").count()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_in_python_and_node_handle_every_event_in_order() {
    let entities = number_from_env("SERIATIM_ENTITIES", 1_000);
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), CONFIG);
    let folder = redis.socket().parent().unwrap().to_owned();
    let mut clients = Vec::new();
    for (number, language) in ["python", "node", "python", "node"].into_iter().enumerate() {
        clients.push(Client::start(language, &sidecar, &folder, &format!("{language}-{number}")));
    }
    eventually("all of them have partitions", || async { owners(&redis.url()).await.len() == 4 }).await;
    publish(&sidecar, &folder, entities).await;
    eventually("it works", || async { clients[0].handled() > 20 }).await;
    clients[0].child.kill().unwrap();
    wait_until_done(&redis.url()).await;
    for client in &mut clients[1..] {
        let pid = client.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(client.child.wait().unwrap().success(), "it ends in order");
    }
    let mut check = Command::new("python3");
    check.arg("tests/checker/check.py").arg("--produced").arg(folder.join("produced.jsonl")).arg("--final");
    check.args(clients.iter().map(|client| &client.journal));
    let checked = check.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    println!("{said}");
    assert!(checked.status.success(), "{said}{}", String::from_utf8_lossy(&checked.stderr));
}

/// Who has a partition at this moment.
async fn owners(redis: &str) -> BTreeSet<String> {
    let mut connection = streams::connect(redis).await;
    let mut owners = BTreeSet::new();
    for index in 0..32 {
        let id = PartitionId { topic: "jobs".into(), index };
        let mut owner = redis::cmd("HGET");
        owner.arg(GroupKeys::new(&id, "storage").lease).arg("owner");
        let owner: Option<String> = owner.query_async(&mut connection).await.unwrap();
        owners.extend(owner.filter(|owner| !owner.is_empty()));
    }
    owners
}

async fn publish(sidecar: &Sidecar, folder: &Path, entities: u64) {
    let to = Producer::start(&format!("http://{}", sidecar.grpc), "jobs", ProducerOptions::default());
    let mut events: Vec<_> =
        (0..entities).flat_map(|n| (0..EVENTS).map(move |s| event(&format!("job-{n}"), s))).collect();
    Random::new(1).shuffle(&mut events);
    let mut journal = fs::File::create(folder.join("produced.jsonl")).unwrap();
    let mut answers = Vec::new();
    for event in events {
        let (entity, sequence) = (event.entity.clone(), event.sequence.unwrap());
        writeln!(journal, r#"{{"entity":"{entity}","epoch":0,"sequence":{sequence}}}"#).unwrap();
        answers.push(to.publish_when_room(event).await);
    }
    for answer in answers {
        let result = answer.await.unwrap();
        assert!(is_success(result.verdict()), "{result:?}");
    }
}

/// A stream that is wrong is told what is wrong.
#[tokio::test]
async fn a_stream_that_breaks_the_contract_is_told_how() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), CONFIG);
    let subscribe = |topic: &str, group: &str| {
        Request::Subscribe(pb::Subscribe {
            topic: topic.into(),
            group: group.into(),
            consumer: "test".into(),
            ..Default::default()
        })
    };
    let good = || subscribe("jobs", "storage");
    for (requests, code, says) in [
        (
            vec![Request::Ack(pb::Ack { delivery: 1 })],
            tonic::Code::InvalidArgument,
            "begins with a subscription",
        ),
        (vec![subscribe("nope", "g")], tonic::Code::NotFound, "no topic \"nope\""),
        (vec![subscribe("jobs", "A B")], tonic::Code::InvalidArgument, "the group \"A B\""),
        (vec![good(), good()], tonic::Code::InvalidArgument, "subscribes once"),
        (
            vec![good(), Request::Ack(pb::Ack { delivery: 7 })],
            tonic::Code::FailedPrecondition,
            "delivery 7 is not one of this stream's open ones",
        ),
        (
            vec![good(), Request::Flow(pb::Flow { in_flight_max: 5_000 })],
            tonic::Code::InvalidArgument,
            "5000 is above 1024",
        ),
    ] {
        let (send, receive) = tokio::sync::mpsc::unbounded_channel();
        for request in requests {
            send.send(pb::ConsumeRequest { request: Some(request) }).unwrap();
        }
        let mut client = DeliveryClient::connect(format!("http://{}", sidecar.grpc)).await.unwrap();
        let mut answers = client.consume(UnboundedReceiverStream::new(receive)).await.unwrap().into_inner();
        let status =
            tokio::time::timeout(Duration::from_secs(20), answers.message()).await.unwrap().unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().contains(says), "{status:?}");
    }
}
