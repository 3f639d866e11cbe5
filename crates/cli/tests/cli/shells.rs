//! `workspace shell`, in a real terminal.

use rustix::process::Signal;

use crate::server::{Server, soon};
use crate::support::signal;
use crate::terminal::Terminal;

fn opened(server: &Server, words: &[&str]) -> Terminal {
    Terminal::new(server.around(&[&["setsid", "--ctty", env!("CARGO_BIN_EXE_workspace")], words].concat()))
}

#[test]
fn a_shell_is_a_real_terminal() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    let mut terminal = opened(&server, &["shell", "work", "--env", "PS1=ask> "]);
    terminal.shows("ask> ");
    assert!(terminal.is_raw());
    terminal.enter("stty size; test -t 0 && echo is''atty $TERM\r");
    terminal.shows("33 91");
    terminal.shows("isatty");
    terminal.resize(120, 40);
    terminal.enter("sleep 0.2; stty size\r");
    terminal.shows("40 120");
    terminal.enter("sleep 1000; echo $((6 * 7))\r");
    std::thread::sleep(std::time::Duration::from_millis(300));
    terminal.enter("\x03");
    terminal.enter("echo interrupted with $?\r");
    terminal.shows("interrupted with 130");
    terminal.enter("printf '\\303\\251\\377|'; exit 9\r");
    assert_eq!(terminal.ends(), Some(9));
    assert!(terminal.bytes().windows(4).any(|bytes| bytes == b"\xc3\xa9\xff|"));
    assert_eq!(server.json(&["ps", "work"])[0]["state"], "exited");
}

#[test]
fn a_program_gets_a_terminal() {
    let Some(server) = Server::start() else { return };
    server.sandbox("work");
    let line = "tty; stty size; read -r word; echo \"got $word\"; exit 5";
    for start in [&["exec", "-t", "--cwd", "/tmp", "work"][..], &["run", "-t"]] {
        let mut terminal = opened(&server, &[start, &["--", "sh", "-c", line]].concat());
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
    let mut terminal = opened(&server, &["shell", "work", "--env", "PS1=> "]);
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
        let mut terminal = opened(&server, &["shell", "work", "--env", "PS1=ask> "]);
        terminal.shows("ask> ");
        assert!(terminal.is_raw());
        signal(&terminal.program, number);
        assert_eq!(terminal.ends(), Some(status));
        soon("the shell inside ends too", || server.json(&["ps", "work"])[0]["state"] != "running");
    }
    let mut terminal = opened(&server, &["shell", "nobody"]);
    assert_eq!(terminal.ends(), Some(125));
    let mut terminal = opened(&server, &["shell", "work"]);
    terminal.shows("$ ");
    server.ok(&["sandbox", "rm", "work"]);
    assert!(terminal.ends().is_some_and(|status| status != 0), "{}", terminal.seen());
}
