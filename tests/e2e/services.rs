//! What the sidecar offers besides publishing: both listeners, health, reflection,
//! probes, metrics, resuming, assigned numbers, readable entries.

use seriatim::{
    client,
    grpc::pb::{self, Verdict},
};
use tonic::transport::Endpoint;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::{v1, v1alpha};

use super::{
    producer::{event, publish_all, publish_one, publisher},
    sidecar::Sidecar,
    streams,
    support::redis_server,
};

const TOPIC: &str = "[topics.jobs]\npartitions = 2\nterminal_types = [\"done\"]\n";

#[tokio::test]
async fn tcp_and_unix_socket_serve_at_once() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), TOPIC);
    let mut by_socket = client::connect(&format!("unix:{}", sidecar.socket.display())).await.unwrap();
    let mut by_tcp = sidecar.client().await;
    let request = |sequence| pb::PublishRequest { topic: "jobs".into(), events: vec![event("e", sequence)] };
    let first = by_socket.publish(request(1)).await.unwrap().into_inner();
    let second = by_tcp.publish(request(0)).await.unwrap().into_inner();
    assert_eq!(first.results[0].verdict(), Verdict::Parked);
    assert_eq!(second.results[0].verdict(), Verdict::Released);
    let mode = std::fs::metadata(&sidecar.socket).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o660);
}

#[tokio::test]
async fn health_and_reflection_answer() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), TOPIC);
    let endpoint = Endpoint::from_shared(format!("http://{}", sidecar.grpc)).unwrap();
    let channel = endpoint.connect().await.unwrap();
    for service in ["", "seriatim.v1.Ingest"] {
        let request = HealthCheckRequest { service: service.into() };
        let answer = HealthClient::new(channel.clone()).check(request).await.unwrap().into_inner();
        assert_eq!(answer.status, 1, "{service:?} is serving");
    }

    let ask = v1::server_reflection_request::MessageRequest::ListServices(String::new());
    let request = v1::ServerReflectionRequest { host: String::new(), message_request: Some(ask) };
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel.clone());
    let answer = client.server_reflection_info(tokio_stream::iter([request])).await.unwrap();
    let said = format!("{:?}", answer.into_inner().message().await.unwrap());
    assert!(said.contains("seriatim.v1.Ingest"), "{said}");

    let ask =
        v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol("seriatim.v1.Event".into());
    let request = v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(ask) };
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
    let answer = client.server_reflection_info(tokio_stream::iter([request])).await.unwrap();
    let said = format!("{:?}", answer.into_inner().message().await.unwrap());
    assert!(said.contains("FileDescriptorResponse"), "{said}");
}

#[tokio::test]
async fn probes_and_metrics_answer_on_their_own_port() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), TOPIC);
    publish_one(&sidecar, "jobs", event("e", 0)).await;
    publish_one(&sidecar, "jobs", event("e", 2)).await;
    publish_one(&sidecar, "jobs", event("e", 2)).await;
    assert_eq!(sidecar.get("/livez").await, (200, "alive\n".into()));
    assert_eq!(sidecar.get("/readyz").await, (200, "ready\n".into()));
    assert_eq!(sidecar.get("/nothing").await.0, 404);
    // Redis has its own door.
    assert_eq!(sidecar.get("/entries?topic=jobs&partition=0").await.0, 404);
    for (line, wanted) in [
        (r#"seriatim_events_total{topic="jobs",verdict="released"}"#, 1.0),
        (r#"seriatim_events_total{topic="jobs",verdict="parked"}"#, 1.0),
        (r#"seriatim_events_total{topic="jobs",verdict="duplicate"}"#, 1.0),
        (r#"seriatim_publish_seconds_count{topic="jobs"}"#, 3.0),
        (r#"seriatim_lane_depth_sum{topic="jobs"}"#, 1.0),
        ("seriatim_in_flight_events ", 0.0),
        ("seriatim_ready ", 1.0),
    ] {
        assert_eq!(sidecar.metric(line).await, wanted, "{line}");
    }
    assert!(sidecar.metric(r#"seriatim_store_call_seconds_count{path="fast"}"#).await >= 1.0);
    assert!(sidecar.metric("seriatim_resident_memory_bytes").await > 1e6);
}

#[tokio::test]
async fn a_restarted_producer_learns_where_its_entity_stands() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), TOPIC);
    let mut client = sidecar.client().await;
    let request = pb::ResumeRequest { topic: "jobs".into(), entity: "e".into() };
    let unknown = client.resume(request.clone()).await.unwrap().into_inner();
    assert_eq!(unknown, pb::ResumeResponse::default());

    let mut events: Vec<pb::Event> = [0, 1, 4, 5, 7].iter().map(|s| event("e", *s)).collect();
    events.iter_mut().for_each(|event| event.epoch = 3);
    publish_all(&publisher(&sidecar, "jobs").await, events, 1).await;
    let known = client.resume(request.clone()).await.unwrap().into_inner();
    let range = |first, last| pb::Range { first, last };
    let parked = vec![range(4, 5), range(7, 7)];
    assert_eq!(known, pb::ResumeResponse { known: true, epoch: 3, next: 2, parked, closed: false });

    let terminal = pb::Event { epoch: 4, r#type: "done".into(), ..event("e", 0) };
    assert_eq!(publish_one(&sidecar, "jobs", terminal).await.verdict(), Verdict::Released);
    let closed = client.resume(request).await.unwrap().into_inner();
    assert_eq!(closed, pb::ResumeResponse { known: true, epoch: 4, next: 1, parked: vec![], closed: true });
}

#[tokio::test]
async fn assigned_sequences_follow_the_arrival_and_an_id_comes_once() {
    let redis = redis_server(&[]);
    let config = "[topics.counted]\nnumbering = \"assigned\"\npartitions = 1\n";
    let sidecar = Sidecar::start(&redis.url(), config);
    let with_id = |id: &str| pb::Event { sequence: None, id: id.into(), ..event("e", 0) };
    for (id, verdict, sequence) in [
        ("a", Verdict::Released, 0),
        ("b", Verdict::Released, 1),
        ("a", Verdict::Duplicate, 0),
        ("c", Verdict::Released, 2),
        ("b", Verdict::Duplicate, 1),
    ] {
        let result = publish_one(&sidecar, "counted", with_id(id)).await;
        assert_eq!((result.verdict(), result.sequence), (verdict, sequence), "{id}");
    }
    // More at once than may be in flight: the rest is refused, none is lost.
    let request = pb::PublishRequest {
        topic: "counted".into(),
        events: (0..40).map(|n| with_id(&format!("many-{n}"))).collect(),
    };
    let results = sidecar.client().await.publish(request).await.unwrap().into_inner().results;
    let released = results.iter().filter(|r| r.verdict() == Verdict::Released).count();
    let refused: Vec<_> = results.iter().filter(|r| r.verdict() == Verdict::Refused).collect();
    assert_eq!((released, refused.len()), (16, 24));
    assert!(refused.iter().all(|r| r.reason == "assigned_in_flight" && r.retry_after_ms > 0), "{refused:?}");
    let mut connection = streams::connect(&redis.url()).await;
    let entries = streams::entries(&mut connection, "counted", 1).await;
    let sequences: Vec<u64> = entries.iter().map(|entry| entry.sequence.get()).collect();
    assert_eq!(sequences, (0..19).collect::<Vec<_>>());
}

/// What a person sees in redis-cli.
#[tokio::test]
async fn entries_are_readable_by_hand() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), "[topics.jobs]\npartitions = 1\n");
    let mut shown =
        pb::Event { time: "2026-11-16T02:17:00Z".into(), source: "/executors/7".into(), ..event("e", 0) };
    shown.attributes.insert("traceparent".into(), "00-abc-def-01".into());
    shown.terminal = true;
    publish_one(&sidecar, "jobs", shown).await;
    let output = std::process::Command::new("redis-cli")
        .arg("-s")
        .arg(redis.socket())
        .args(["--no-raw", "XRANGE", "seriatim:{jobs.0}:events", "-", "+"])
        .output()
        .unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let fields: Vec<&str> = output.split('"').skip(3).step_by(2).collect();
    let attrs = r#"{\"source\":\"/executors/7\",\"time\":\"2026-11-16T02:17:00Z\",\"traceparent\":\"00-abc-def-01\",\"terminal\":true}"#;
    assert!(output.contains(attrs), "{output}");
    assert_eq!(
        fields[..10],
        ["entity", "e", "epoch", "0", "sequence", "0", "type", "step", "order", "strict"]
    );
}
