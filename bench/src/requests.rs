//! Client that sends HTTP requests over many connections at once.
//!
//! A client in Python takes about as much of the machine as the server that it measures; this one writes prepared
//! bytes and reads the response.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::args::Args;
use crate::failure::Failure;
use crate::stats::Latency;

/// Longest wait for a response.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest line of a response.
const LINE_MAX: u64 = 16 << 10;

/// Requests that each connection sends in turn, read from standard input as JSON.
#[derive(Debug, Deserialize)]
struct Load {
    port: u16,
    connections: usize,
    /// Times that each connection sends all requests.
    rounds: usize,
    requests: Vec<Request>,
}

/// Request. `{n}` in its path is replaced by the number of the connection.
#[derive(Debug, Deserialize)]
struct Request {
    method: String,
    path: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default)]
    body: String,
}

/// Measurements, printed as JSON.
#[derive(Debug, Serialize)]
struct Measured {
    requests: usize,
    seconds: f64,
    requests_per_second: f64,
    /// CPU time of this program, in seconds.
    client_cpu: f64,
    latency: Latency,
}

/// Sends the load that standard input describes.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    args.finish()?;
    let load: Load = serde_json::from_reader(std::io::stdin().lock())?;
    let connections: Vec<Connection> =
        (0..load.connections).map(|n| Connection::open(&load, n)).collect::<Result<_, _>>()?;
    let start = Barrier::new(connections.len() + 1);
    let (mut samples, seconds) = std::thread::scope(|scope| {
        let threads: Vec<_> = connections
            .into_iter()
            .map(|connection| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    connection.send_all(load.rounds)
                })
            })
            .collect();
        start.wait();
        let began = Instant::now();
        let mut samples = Vec::new();
        for thread in threads {
            samples.extend(thread.join().map_err(|_| "a connection panicked")??);
        }
        Ok::<_, Failure>((samples, began.elapsed().as_secs_f64()))
    })?;
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let measured = Measured {
        requests: samples.len(),
        seconds,
        requests_per_second: samples.len() as f64 / seconds,
        client_cpu: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
        latency: Latency::of(&mut samples),
    };
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// Connection that is kept, with the encoded requests that it sends.
struct Connection {
    stream: BufReader<TcpStream>,
    requests: Vec<Vec<u8>>,
    line: Vec<u8>,
    body: Vec<u8>,
}

impl Connection {
    fn open(load: &Load, number: usize) -> Result<Self, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", load.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let requests =
            load.requests.iter().map(|request| encode(request, number)).collect::<Result<_, _>>()?;
        Ok(Self { stream: BufReader::new(stream), requests, line: Vec::new(), body: Vec::new() })
    }

    /// Sends all requests that many times. Returns the time of each, in microseconds.
    fn send_all(mut self, rounds: usize) -> Result<Vec<f64>, Failure> {
        let mut samples = Vec::with_capacity(rounds * self.requests.len());
        for _ in 0..rounds {
            for index in 0..self.requests.len() {
                let began = Instant::now();
                self.stream.get_ref().write_all(&self.requests[index])?;
                self.read_response()?;
                samples.push(began.elapsed().as_secs_f64() * 1e6);
            }
        }
        Ok(samples)
    }

    fn read_response(&mut self) -> Result<(), Failure> {
        let status: u16 = self.read_line()?.split(' ').nth(1).unwrap_or_default().parse()?;
        let mut length = Length::Bytes(0);
        loop {
            let line = self.read_line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = Length::Bytes(value.trim().parse()?),
                "transfer-encoding" => length = Length::Chunks,
                _ => {}
            }
        }
        self.body.clear();
        match length {
            Length::Bytes(count) => self.read_body(count)?,
            Length::Chunks => self.read_chunks()?,
        }
        if status >= 300 {
            let body = String::from_utf8_lossy(&self.body);
            return Err(format!("the server responded with {status}: {body}").into());
        }
        Ok(())
    }

    fn read_chunks(&mut self) -> Result<(), Failure> {
        loop {
            let count = u64::from_str_radix(&self.read_line()?, 16)?;
            self.read_body(count)?;
            self.read_line()?;
            if count == 0 {
                return Ok(());
            }
        }
    }

    fn read_body(&mut self, count: u64) -> Result<(), Failure> {
        let read = (&mut self.stream).take(count).read_to_end(&mut self.body)?;
        if (read as u64) < count {
            return Err("the server closed the connection".into());
        }
        Ok(())
    }

    fn read_line(&mut self) -> Result<String, Failure> {
        self.line.clear();
        (&mut self.stream).take(LINE_MAX).read_until(b'\n', &mut self.line)?;
        if !self.line.ends_with(b"\r\n") {
            return Err("the server closed the connection".into());
        }
        Ok(String::from_utf8_lossy(&self.line[..self.line.len() - 2]).into_owned())
    }
}

/// Framing of a response.
enum Length {
    Bytes(u64),
    Chunks,
}

fn encode(request: &Request, number: usize) -> Result<Vec<u8>, Failure> {
    let Request { method, path, headers, body } = request;
    let path = path.replace("{n}", &number.to_string());
    let mut head =
        format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        write!(head, "{name}: {value}\r\n")?;
    }
    Ok([head.as_bytes(), b"\r\n", body.as_bytes()].concat())
}
