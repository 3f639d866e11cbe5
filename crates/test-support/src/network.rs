//! Simulated host and internet: two network namespaces, connected by a veth pair.
//!
//! The tests run in the namespace of the test host. The namespace of the internet has several addresses. On each, TCP
//! port 80 replies with the address, TCP port 81 sends back [`BULK_SIZE`] bytes after it has received all of them, UDP
//! port 82 sends back each packet, and a DNS server on port 53 resolves names.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, ExitStatus, Stdio};

/// Addresses of the test host: on its link, and on loopback.
pub const HOST: [&str; 2] = ["10.77.0.1", "10.88.0.1"];
/// Addresses in the namespace of the internet.
pub const INTERNET: [&str; 4] = ["198.51.100.10", "198.51.100.11", "203.0.113.5", "169.254.169.254"];
/// Number of bytes that port 81 receives before it sends them back.
pub const BULK_SIZE: usize = 8 << 20;
/// Address and port of the DNS server, which is in the namespace of the internet.
pub const DNS_SERVER: &str = "10.77.0.2:53";

const SETUP: &str = r#"
set -e
ip link set lo up
ip link add w0 type veth peer name w1 netns "$1"
ip addr add 10.77.0.1/24 dev w0
ip addr add 10.88.0.1/32 dev lo
ip link set w0 up
internet() { nsenter --net="/proc/$1/ns/net" -- "${@:2}"; }
internet "$1" ip link set lo up
internet "$1" ip addr add 10.77.0.2/24 dev w1
internet "$1" ip link set w1 up
for address in $2; do internet "$1" ip addr add "$address/32" dev lo; done
ip route add default via 10.77.0.2
# Forward packets of the containers of the test host.
echo 1 >/proc/sys/net/ipv4/ip_forward
internet "$1" ip route add default via 10.77.0.1
"#;

/// Network namespace of the internet. It exists until the process ends, because threads with sockets in it serve
/// requests: a process can start only one.
pub struct TestNetwork {
    /// Process that creates the namespace; killed on drop.
    holder: Child,
}

/// Runs this program with `arguments` in a new network namespace, which is empty, and a new mount namespace. `/opt` is
/// first in `PATH`, so that a test can mount a directory there with its own `pasta`.
pub fn in_own_network(arguments: &[&str]) -> std::io::Result<ExitStatus> {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--"]).arg(std::env::current_exe()?).args(arguments);
    command.env("PATH", format!("/opt:{}", std::env::var("PATH").unwrap_or_default()));
    command.status()
}

impl TestNetwork {
    /// Creates the namespace of the internet, and connects the current network namespace to it, which must be empty.
    pub fn start() -> Self {
        let mut holder = Command::new("unshare");
        holder.args(["--net", "--", "sh", "-c", "echo; exec sleep 3600"]).stdout(Stdio::piped());
        let mut holder = holder.spawn().unwrap();
        holder.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        let network = Self { holder };
        let mut setup = Command::new("bash");
        setup.args(["-c", SETUP, "bash", &network.holder.id().to_string(), &INTERNET.join(" ")]);
        assert!(setup.status().unwrap().success());
        network.serve();
        network
    }

    fn serve(&self) {
        let namespace = File::open(format!("/proc/{}/ns/net", self.holder.id())).unwrap();
        let sockets = std::thread::spawn(move || {
            let kind = rustix::thread::LinkNameSpaceType::Network;
            rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(kind)).unwrap();
            let any = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            let listen = |port| TcpListener::bind(any(port)).unwrap();
            let bind_udp = |port| UdpSocket::bind(any(port)).unwrap();
            (listen(80), listen(81), bind_udp(82), listen(53), bind_udp(53))
        });
        let (web, bulk, echo, dns_tcp, dns_udp) = sockets.join().unwrap();
        serve_local_address(web);
        std::thread::spawn(move || {
            for stream in bulk.incoming().flatten() {
                std::thread::spawn(move || exchange(stream));
            }
        });
        std::thread::spawn(move || {
            let mut packet = vec![0; 65_536];
            while let Ok((length, from)) = echo.recv_from(&mut packet) {
                let _ = echo.send_to(&packet[..length], from);
            }
        });
        std::thread::spawn(move || {
            let mut packet = [0; 512];
            while let Ok((length, from)) = dns_udp.recv_from(&mut packet) {
                let mut answer = answer(&packet[..length]);
                if answer.len() > 512 {
                    // Only the header, with the flag TC (truncated), and the question: the client retries over TCP.
                    answer.truncate(12);
                    answer[2] |= 2;
                    answer[4..12].fill(0);
                    answer[5] = 1;
                    answer.extend(&packet[12..question_end(&packet)]);
                }
                dns_udp.send_to(&answer, from).unwrap();
            }
        });
        std::thread::spawn(move || {
            for mut stream in dns_tcp.incoming().flatten() {
                let mut length = [0; 2];
                stream.read_exact(&mut length).unwrap();
                let mut packet = vec![0; usize::from(u16::from_be_bytes(length))];
                stream.read_exact(&mut packet).unwrap();
                let answer = answer(&packet);
                let length = (answer.len() as u16).to_be_bytes();
                stream.write_all(&[&length, answer.as_slice()].concat()).unwrap();
            }
        });
    }
}

impl Drop for TestNetwork {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Receives [`BULK_SIZE`] bytes, and sends them back.
fn exchange(mut stream: TcpStream) {
    let mut bytes = vec![0; BULK_SIZE];
    if stream.read_exact(&mut bytes).is_ok() {
        let _ = stream.write_all(&bytes);
    }
}

/// Replies to every connection with its local address.
pub fn serve_local_address(listener: TcpListener) {
    let reply = |mut stream: TcpStream| {
        let address: IpAddr = stream.local_addr()?.ip();
        writeln!(stream, "{address}")
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = reply(stream);
        }
    });
}

/// Returns the addresses of a host name; none if it does not exist.
fn resolve(name: &str) -> Vec<Ipv4Addr> {
    let address = |text: &str| text.parse().unwrap();
    match name {
        "one.example.com" => vec![address(INTERNET[0])],
        "two.example.org" | "deep.two.example.org" => vec![address(INTERNET[1])],
        "other.test" => vec![address(INTERNET[2])],
        "metadata.example.org" => vec![address(INTERNET[3])],
        "machine.example.org" => vec![address(HOST[1])],
        "loopback.example.org" => vec![Ipv4Addr::LOCALHOST],
        "many.example.org" => {
            let many = (0..100).map(|number| Ipv4Addr::new(203, 0, 114, number));
            many.chain([address(INTERNET[2])]).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the offset of the byte after the question of a DNS packet with one question.
fn question_end(packet: &[u8]) -> usize {
    let mut at = 12;
    while packet[at] != 0 {
        at += 1 + usize::from(packet[at]);
    }
    at + 5
}

/// Returns the response to a DNS query with one question.
fn answer(packet: &[u8]) -> Vec<u8> {
    let end = question_end(packet);
    let (mut name, mut at) = (Vec::new(), 12);
    while packet[at] != 0 {
        let length = usize::from(packet[at]);
        name.push(String::from_utf8_lossy(&packet[at + 1..at + 1 + length]).to_lowercase());
        at += 1 + length;
    }
    let addresses = resolve(&name.join("."));
    // Types of the question.
    let (a, aaaa) = (packet[end - 3] == 1, packet[end - 3] == 28);
    let mut answer = packet[..end].to_vec();
    // Flags of a response, with NXDOMAIN if the name does not exist; then the counts of questions and records.
    (answer[2], answer[3]) = (0x81, if addresses.is_empty() { 0x83 } else { 0x80 });
    answer[4..12].fill(0);
    answer[5] = 1;
    let records: Vec<Vec<u8>> = addresses.iter().filter(|_| a).map(|one| one.octets().to_vec()).collect();
    // A response that sandboxes must not see: they have no IPv6.
    let records = if aaaa && !addresses.is_empty() { vec![vec![0xfd; 16]] } else { records };
    answer[7] = records.len() as u8;
    for record in records {
        answer.extend([0xc0, 12, 0, if aaaa { 28 } else { 1 }, 0, 1, 0, 0, 0, 60, 0, record.len() as u8]);
        answer.extend(record);
    }
    answer
}

/// Returns the processes whose names begin with one of these, in the network namespace of this one. A name is that in
/// `/proc/PID/comm`: programs have variants, such as `pasta.avx2`.
pub fn processes(name_prefixes: &[&str]) -> Vec<i32> {
    let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let here = network("self");
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let named = all.filter(|pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name_prefixes.iter().any(|prefix| name.starts_with(prefix))
    });
    named.filter(|pid| network(&pid.to_string()) == here).collect()
}
