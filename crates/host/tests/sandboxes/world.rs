//! A machine and a world around it, made of network namespaces: nothing of it is seen on the real machine.
//!
//! The tests run in the machine's. The world is one link away, has some addresses, tells on port 80 of each which
//! one it is, and answers what names mean.

#![allow(dead_code, reason = "several suites use it, each what it needs")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, ExitStatus, Stdio};

/// Addresses of the machine: on its link, and on another.
pub(crate) const MACHINE: [&str; 2] = ["10.77.0.1", "10.88.0.1"];
/// Addresses of the world.
pub(crate) const WORLD: [&str; 4] = ["198.51.100.10", "198.51.100.11", "203.0.113.5", "169.254.169.254"];
/// How much port 81 of the world takes, and then gives back; port 82 gives back packets.
pub(crate) const BULK: usize = 8 << 20;
/// Who answers what names mean.
pub(crate) const NAMES: &str = "10.77.0.2:53";

const SETUP: &str = r#"
set -e
ip link set lo up
ip link add w0 type veth peer name w1 netns "$1"
ip addr add 10.77.0.1/24 dev w0
ip addr add 10.88.0.1/32 dev lo
ip link set w0 up
world() { nsenter --net="/proc/$1/ns/net" -- "${@:2}"; }
world "$1" ip link set lo up
world "$1" ip addr add 10.77.0.2/24 dev w1
world "$1" ip link set w1 up
for address in $2; do world "$1" ip addr add "$address/32" dev lo; done
ip route add default via 10.77.0.2
# For what is behind the machine, such as containers.
echo 1 >/proc/sys/net/ipv4/ip_forward
world "$1" ip route add default via 10.77.0.1
"#;

/// The world; ends with this.
pub(crate) struct World {
    keeper: Child,
}

/// Starts this program again with `words`, as the superuser of a machine without a network, which sees its own mounts
/// and looks for programs in `/opt` first.
pub(crate) fn apart(words: &[&str]) -> std::io::Result<ExitStatus> {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--"]).arg(std::env::current_exe()?).args(words);
    command.env("PATH", format!("/opt:{}", std::env::var("PATH").unwrap_or_default()));
    command.status()
}

impl World {
    /// Makes the world around a machine that has no network yet.
    pub(crate) fn make() -> Self {
        let mut keeper = Command::new("unshare");
        keeper.args(["--net", "--", "sh", "-c", "echo; exec sleep 3600"]).stdout(Stdio::piped());
        let mut keeper = keeper.spawn().unwrap();
        keeper.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        let world = Self { keeper };
        let mut setup = Command::new("bash");
        setup.args(["-c", SETUP, "bash", &world.keeper.id().to_string(), &WORLD.join(" ")]);
        assert!(setup.status().unwrap().success());
        world.serve();
        world
    }

    fn serve(&self) {
        let namespace = File::open(format!("/proc/{}/ns/net", self.keeper.id())).unwrap();
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

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// Takes [`BULK`] bytes, and gives back as many.
fn exchange(mut stream: TcpStream) {
    let mut bytes = vec![0; BULK];
    if stream.read_exact(&mut bytes).is_ok() {
        let _ = stream.write_all(&bytes);
    }
}

/// Tells everybody who connects at which address.
pub(crate) fn tell_address(listener: TcpListener) {
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

/// What a name means in this world.
fn meaning(name: &str) -> Vec<Ipv4Addr> {
    let address = |text: &str| text.parse().unwrap();
    match name {
        "one.example.com" => vec![address(WORLD[0])],
        "two.example.org" | "deep.two.example.org" => vec![address(WORLD[1])],
        "other.test" => vec![address(WORLD[2])],
        "metadata.example.org" => vec![address(WORLD[3])],
        "machine.example.org" => vec![address(MACHINE[1])],
        "loopback.example.org" => vec![Ipv4Addr::LOCALHOST],
        "many.example.org" => {
            let many = (0..100).map(|number| Ipv4Addr::new(203, 0, 114, number));
            many.chain([address(WORLD[2])]).collect()
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
    // An answer that sandboxes must not see: they have no such addresses.
    let records = if aaaa && !addresses.is_empty() { vec![vec![0xfd; 16]] } else { records };
    answer[7] = records.len() as u8;
    for record in records {
        answer.extend([0xc0, 12, 0, if aaaa { 28 } else { 1 }, 0, 1, 0, 0, 0, 60, 0, record.len() as u8]);
        answer.extend(record);
    }
    answer
}

/// Processes of that name in the network of this one.
pub(crate) fn processes(names: &[&str]) -> Vec<i32> {
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
