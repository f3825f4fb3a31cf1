//! A connection that is dead without a word: a middlebox forgot it, and neither end is
//! told. Whoever only listens on it would listen for ever.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use seriatim::{
    client::{Producer, ProducerOptions},
    grpc::pb::Verdict,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
};

use crate::{
    producer::event,
    sidecar::{Sidecar, eventually},
    support::redis_server,
};

/// Stands between a sidecar and its Redis. Of connections that listen for probes, the
/// first `deaf` ones get nothing once they have subscribed, and stay open.
async fn middlebox(socket: PathBuf, deaf: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let listening = Arc::new(AtomicUsize::new(0));
    let count = listening.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = UnixStream::connect(&socket).await.unwrap();
            tokio::spawn(carry(client, server, deaf, count.clone()));
        }
    });
    (url, listening)
}

async fn carry(mut client: TcpStream, mut server: UnixStream, deaf: usize, listening: Arc<AtomicUsize>) {
    let (mut asked, mut answered, mut is_deaf) = (vec![0; 1 << 16], vec![0; 1 << 16], false);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(size @ 1..) = read else { return };
                server.write_all(&asked[..size]).await.unwrap();
                if asked[..size].windows(10).any(|word| word.eq_ignore_ascii_case(b"PSUBSCRIBE")) {
                    // Its own answer passes, and nothing after it.
                    let size = server.read(&mut answered).await.unwrap();
                    client.write_all(&answered[..size]).await.unwrap();
                    is_deaf = listening.fetch_add(1, Ordering::SeqCst) < deaf;
                }
            }
            read = server.read(&mut answered) => {
                let Ok(size @ 1..) = read else { return };
                if !is_deaf && client.write_all(&answered[..size]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Starting a sidecar blocks a thread, and the middlebox has to go on meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sidecar_that_hears_no_probes_any_more_listens_anew() {
    let redis = redis_server(&[]);
    let socket = PathBuf::from(redis.url().strip_prefix("redis+unix://").expect("a private socket"));
    let (url, listening) = middlebox(socket, 1).await;
    // Probes often, and for long enough to see the second connection hear one.
    let waits = vec!["2000"; 15].join(",");
    let config =
        format!("[topics.jobs]\npartitions = 1\ngap_waits_ms = [{waits}]\nparked_age_max_ms = 60000\n");
    let sidecar = Sidecar::start(&url, &config);
    let producer = Producer::start(&format!("http://{}", sidecar.grpc), "jobs", ProducerOptions::default());
    producer.publish(event("e", 0)).await.unwrap();
    producer.remember(event("e", 1));
    assert_eq!(producer.publish(event("e", 2)).await.unwrap().verdict(), Verdict::Parked);
    eventually("the gap is filled", || async {
        sidecar.metric("seriatim_gap_seconds_count{topic=\"jobs\"}").await == 1.0
    })
    .await;
    assert_eq!((listening.load(Ordering::SeqCst), producer.resent()), (2, 1));
    assert!(sidecar.metric("seriatim_probed_total{topic=\"jobs\"}").await >= 2.0, "the first was not heard");
    producer.close().await;
}
