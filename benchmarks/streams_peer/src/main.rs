//! The peer of benchmarks/streams.py: SeaStreamer's own file backend, through its public API.
//!
//! `write FILE COUNT SIZE` and `read FILE COUNT` print seconds and CPU seconds; `sample FILE` makes
//! a small file with two streams, many beacons and an end mark.

use sea_streamer_file::{
    AutoStreamReset, FileConnectOptions, FileConsumerOptions, FileId, FileStreamer,
};
use sea_streamer_types::{
    Buffer, Consumer, ConsumerMode, ConsumerOptions, Message, Producer, StreamKey, Streamer,
};
use std::{error::Error, fs, path::Path, time::Instant};

type Done<T> = Result<T, Box<dyn Error>>;

async fn open(path: &str, interval: u32, eos: bool, prefetch: usize) -> Done<FileStreamer> {
    let mut options = FileConnectOptions::default();
    options.set_prefetch_message(prefetch);
    options.set_create_if_not_exists(true);
    options.set_beacon_interval(interval)?;
    options.set_end_with_eos(eos);
    let uri = FileId::new(path).to_streamer_uri()?;
    Ok(FileStreamer::connect(uri, options).await?)
}

/// User and system time of this process, in clock ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string(Path::new("/proc/self/stat")).unwrap_or_default();
    let rest = stat.rsplit(')').next().unwrap_or("");
    let field = |n: usize| rest.split_whitespace().nth(n).and_then(|v| v.parse::<f64>().ok());
    (field(11).unwrap_or(0.0) + field(12).unwrap_or(0.0)) / 100.0
}

async fn write(path: &str, count: u64, size: usize) -> Done<()> {
    let streamer = open(path, 1024 * 1024, false, 0).await?;
    let mut producer = streamer
        .create_producer(StreamKey::new("bench")?, Default::default())
        .await?;
    let payload = vec![b'x'; size];
    for i in 0..count {
        // The receipts are dropped, as a program that only flushes would do.
        let _ = producer.send(payload.as_slice())?;
        if i % 10_000 == 9_999 {
            producer.flush().await?;
        }
    }
    producer.flush().await?;
    producer.end().await?;
    Ok(())
}

async fn read(path: &str, count: u64) -> Done<()> {
    // The crate's reading task stops when as many messages wait as it may prefetch. A consumer that
    // takes them all before the task has begun to wait for it is not heard, and both wait for ever;
    // so it may prefetch everything, which is also the fastest it can do.
    let streamer = open(path, 1024 * 1024, false, count as usize).await?;
    let mut options = FileConsumerOptions::new(ConsumerMode::RealTime);
    options.set_auto_stream_reset(AutoStreamReset::Earliest);
    options.set_live_streaming(true);
    let consumer = streamer
        .create_consumer(&[StreamKey::new("bench")?], options)
        .await?;
    let mut bytes = 0;
    for _ in 0..count {
        bytes += consumer.next().await?.message().size();
    }
    assert!(bytes > 0);
    Ok(())
}

async fn sample(path: &str) -> Done<()> {
    let streamer = open(path, 1024, true, 0).await?;
    let producer = streamer.create_generic_producer(Default::default()).await?;
    let (cat, dog) = (StreamKey::new("cat")?, StreamKey::new("dog")?);
    for i in 0..60 {
        let stream = if i % 3 == 0 { &dog } else { &cat };
        let payload = format!("{{\"tick\":{i}}}").repeat(1 + i % 4);
        producer.send_to(stream, payload.as_str())?.await?;
    }
    producer.end().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Done<()> {
    let args: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (start, cpu) = (Instant::now(), cpu_seconds());
    match words[1..] {
        ["write", path, count, size] => write(path, count.parse()?, size.parse()?).await?,
        ["read", path, count] => read(path, count.parse()?).await?,
        ["sample", path] => sample(path).await?,
        _ => return Err("write FILE COUNT SIZE | read FILE COUNT | sample FILE".into()),
    }
    println!("{} {}", start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    // All that counts is done and printed: the crate's tasks are not waited for.
    std::process::exit(0)
}
