//! A test host and an internet of network namespaces, invisible to the real host.
//!
//! The tests run in the namespace of the test host. The internet is one link away and has several addresses.
//! Port 80 of each replies with the address, and a DNS server resolves names.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, ExitStatus, Stdio};

/// Addresses of the test host: on its link, and on loopback.
pub const HOST: [&str; 2] = ["10.77.0.1", "10.88.0.1"];
/// Addresses of the internet.
pub const INTERNET: [&str; 4] = ["198.51.100.10", "198.51.100.11", "203.0.113.5", "169.254.169.254"];
/// Number of bytes that port 81 receives and sends back; port 82 echoes packets.
pub const BULK: usize = 8 << 20;
/// DNS server.
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
# For what is behind the machine, such as containers.
echo 1 >/proc/sys/net/ipv4/ip_forward
internet "$1" ip route add default via 10.77.0.1
"#;

/// Network namespace of the internet, which ends with this.
pub struct TestNetwork {
    holder: Child,
}

/// Starts this program again with `words`, as root of a host without a network, with a mount namespace of its
/// own and `/opt` first in the path.
pub fn in_own_network(words: &[&str]) -> std::io::Result<ExitStatus> {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--"]).arg(std::env::current_exe()?).args(words);
    command.env("PATH", format!("/opt:{}", std::env::var("PATH").unwrap_or_default()));
    command.status()
}

impl TestNetwork {
    /// Sets up the internet around a host that has no network yet.
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
            let speak = |port| UdpSocket::bind(any(port)).unwrap();
            (listen(80), listen(81), speak(82), listen(53), speak(53))
        });
        let (web, bulk, echo, long_names, names) = sockets.join().unwrap();
        tell_address(web);
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
            while let Ok((length, from)) = names.recv_from(&mut packet) {
                let mut answer = answer(&packet[..length]);
                if answer.len() > 512 {
                    answer.truncate(12);
                    answer[2] |= 2;
                    answer[4..12].fill(0);
                    answer[5] = 1;
                    answer.extend(&packet[12..question_end(&packet)]);
                }
                names.send_to(&answer, from).unwrap();
            }
        });
        std::thread::spawn(move || {
            for mut stream in long_names.incoming().flatten() {
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

/// Receives [`BULK`] bytes, and sends them back.
fn exchange(mut stream: TcpStream) {
    let mut bytes = vec![0; BULK];
    if stream.read_exact(&mut bytes).is_ok() {
        let _ = stream.write_all(&bytes);
    }
}

/// Replies to every connection with its local address.
pub fn tell_address(listener: TcpListener) {
    let tell = |mut stream: TcpStream| {
        let address: IpAddr = stream.local_addr()?.ip();
        writeln!(stream, "{address}")
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = tell(stream);
        }
    });
}

/// Resolves a name.
fn meaning(name: &str) -> Vec<Ipv4Addr> {
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

fn question_end(packet: &[u8]) -> usize {
    let mut at = 12;
    while packet[at] != 0 {
        at += 1 + usize::from(packet[at]);
    }
    at + 5
}

fn answer(packet: &[u8]) -> Vec<u8> {
    let end = question_end(packet);
    let (mut name, mut at) = (Vec::new(), 12);
    while packet[at] != 0 {
        let length = usize::from(packet[at]);
        name.push(String::from_utf8_lossy(&packet[at + 1..at + 1 + length]).to_lowercase());
        at += 1 + length;
    }
    let addresses = meaning(&name.join("."));
    let (a, aaaa) = (packet[end - 3] == 1, packet[end - 3] == 28);
    let mut answer = packet[..end].to_vec();
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

/// Returns the processes with these names in the network namespace of this one.
pub fn processes(names: &[&str]) -> Vec<i32> {
    let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let here = network("self");
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let named = all.filter(|pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        names.iter().any(|wanted| name.trim().starts_with(wanted))
    });
    named.filter(|pid| network(&pid.to_string()) == here).collect()
}
