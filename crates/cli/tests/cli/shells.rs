//! `workspace shell`, in a real terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::server::{LONG, Server, signal, soon};

/// A terminal with a program in it.
struct Terminal {
    master: File,
    /// Keeps the terminal as it is when the program has ended.
    slave: OwnedFd,
    program: Child,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// The same program in a session of its own, so that the terminal's signals reach it.
    fn new(server: &Server, words: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave: OwnedFd = File::options().read(true).write(true).open(name).unwrap().into();
        resize(&master, 91, 33);
        let mut command =
            server.around(&[&["setsid", "--ctty", env!("CARGO_BIN_EXE_workspace")], words].concat());
        let program = attached(&mut command, &slave).spawn().unwrap();
        let screen = Arc::new(Mutex::new(Vec::new()));
        let master = File::from(master);
        let (mut reader, seen) = (master.try_clone().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                seen.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Self { master, slave, program, screen }
    }

    fn enter(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    fn shows(&self, text: &str) {
        let began = std::time::Instant::now();
        while !self.seen().contains(text) {
            assert!(began.elapsed() < LONG, "{text:?} is never shown: {:?}", self.seen());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.slave).unwrap().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// How it ended, and that the terminal is as it was.
    fn ends(&mut self) -> Option<i32> {
        let mut ended = None;
        soon("it ends", || {
            ended = self.program.try_wait().unwrap();
            ended.is_some()
        });
        assert!(!self.is_raw(), "the terminal is as it was");
        ended.unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A test that failed leaves it running.
        drop(self.program.kill());
        drop(self.program.wait());
    }
}

fn attached<'a>(command: &'a mut Command, slave: &OwnedFd) -> &'a mut Command {
    let [input, output, error] = [(); 3].map(|()| slave.try_clone().unwrap());
    command.stdin(input).stdout(output).stderr(error)
}

fn resize(master: &impl std::os::fd::AsFd, cols: u16, rows: u16) {
    tcsetwinsize(master, Winsize { ws_col: cols, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

#[test]
fn a_shell_is_a_real_terminal() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    let mut terminal = Terminal::new(&server, &["shell", "work", "--env", "PS1=ask> "]);
    terminal.shows("ask> ");
    assert!(terminal.is_raw());
    terminal.enter("stty size; test -t 0 && echo is''atty $TERM\r");
    terminal.shows("33 91");
    terminal.shows("isatty");
    resize(&terminal.master, 120, 40);
    terminal.enter("sleep 0.2; stty size\r");
    terminal.shows("40 120");
    terminal.enter("sleep 1000; echo $((6 * 7))\r");
    std::thread::sleep(std::time::Duration::from_millis(300));
    terminal.enter("\x03");
    terminal.enter("echo interrupted with $?\r");
    terminal.shows("interrupted with 130");
    terminal.enter("printf '\\303\\251\\377|'; exit 9\r");
    assert_eq!(terminal.ends(), Some(9));
    assert!(terminal.screen.lock().unwrap().windows(4).any(|bytes| bytes == b"\xc3\xa9\xff|"));
    assert_eq!(server.json(&["ps", "work"])[0]["state"], "exited");
}

#[test]
fn a_program_gets_a_terminal() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    let line = "tty; stty size; read -r word; echo \"got $word\"; exit 5";
    for start in [&["exec", "-t", "--cwd", "/tmp", "work"][..], &["run", "-t"]] {
        let mut terminal = Terminal::new(&server, &[start, &["--", "sh", "-c", line]].concat());
        terminal.shows("33 91");
        terminal.enter("it's\r");
        terminal.shows("got it's");
        assert_eq!(terminal.ends(), Some(5), "{}", terminal.seen());
    }
    assert_eq!(server.json(&["ps"]).len(), 1, "that of `run` is gone");
}

#[test]
fn a_shell_is_connected_again_when_the_server_is_back() {
    let Some(mut server) = Server::start() else { return };
    server.sandbox("work");
    let mut terminal = Terminal::new(&server, &["shell", "work", "--env", "PS1=> "]);
    terminal.enter("word=kept; echo be''fore\r");
    terminal.shows("before");
    server.kill();
    terminal.enter("echo still $word\r");
    std::thread::sleep(std::time::Duration::from_millis(300));
    server.begin();
    terminal.shows("still kept");
    assert_eq!(
        terminal.seen().matches("before\r\n").count(),
        1,
        "nothing is shown twice: {}",
        terminal.seen()
    );
    terminal.enter("exit 4\r");
    assert_eq!(terminal.ends(), Some(4));
}

#[test]
fn the_terminal_is_restored_however_it_ends() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    for (number, status) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
        let mut terminal = Terminal::new(&server, &["shell", "work", "--env", "PS1=ask> "]);
        terminal.shows("ask> ");
        assert!(terminal.is_raw());
        signal(&terminal.program, number);
        assert_eq!(terminal.ends(), Some(status));
        soon("the shell inside ends too", || server.json(&["ps", "work"])[0]["state"] != "running");
    }
    let mut terminal = Terminal::new(&server, &["shell", "nobody"]);
    assert_eq!(terminal.ends(), Some(125));
    let mut terminal = Terminal::new(&server, &["shell", "work"]);
    terminal.shows("$ ");
    server.ok(&["sandbox", "rm", "work"]);
    assert!(terminal.ends().is_some_and(|status| status != 0), "{}", terminal.seen());
}
