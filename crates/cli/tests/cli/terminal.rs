//! Terminals for tests.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::server::soon;
use crate::support::LONG;

/// Pseudo-terminal with a program.
pub(crate) struct Terminal {
    master: File,
    /// Keeps the terminal open after the program has ended.
    slave: OwnedFd,
    pub(crate) program: Child,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Starts a command in a new terminal. It must begin with `setsid --ctty`, so that it gets the signals of the terminal.
    pub(crate) fn new(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave: OwnedFd = File::options().read(true).write(true).open(name).unwrap().into();
        resize(&master, 91, 33);
        let program = attached(&mut command, &slave).spawn().unwrap();
        let screen = Arc::new(Mutex::new(Vec::new()));
        let master = File::from(master);
        let (mut reader, seen) = (master.try_clone().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                seen.lock().extend_from_slice(&buffer[..count]);
            }
        });
        Self { master, slave, program, screen }
    }

    pub(crate) fn enter(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&self, cols: u16, rows: u16) {
        resize(&self.master, cols, rows);
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.screen.lock().clone()
    }

    pub(crate) fn seen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock()).into_owned()
    }

    pub(crate) fn shows(&self, text: &str) {
        let began = std::time::Instant::now();
        while !self.seen().contains(text) {
            assert!(began.elapsed() < LONG, "{text:?} is never shown: {:?}", self.seen());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    pub(crate) fn is_raw(&self) -> bool {
        !tcgetattr(&self.slave).unwrap().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits for the end, and checks that the terminal is restored.
    pub(crate) fn ends(&mut self) -> Option<i32> {
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
