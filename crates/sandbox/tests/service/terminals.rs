//! Terminals.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, and `create` creates a
//! sandbox of the owner `alice`.

use libtest_mimic::Trial;
use workspace_sandbox::{CommandHandle, OutputPiece, SandboxError, Size, TerminalRequest};

use crate::home::{ANY_TAG, TestHome, alice, create, wait_until};
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        terminal_takes_input_and_is_resized_and_closed,
        terminal_runs_a_command_line,
        dropped_read_loses_no_output,
        terminal_limit_is_enforced
    ]
}

fn terminal_request() -> TerminalRequest {
    TerminalRequest {
        size: Size { cols: 80, rows: 24 },
        shell: None,
        command: None,
        cwd: None,
        envs: [].into(),
        user: None,
    }
}

/// Reads until the screen shows `text`.
async fn read_until(handle: &CommandHandle, text: &str) -> String {
    let mut output = handle.output(0).await.unwrap();
    let mut screen = String::new();
    while !screen.contains(text) {
        let pieces = output.next().await.unwrap();
        let pieces = pieces.unwrap_or_else(|| panic!("`{text}` never came: {screen}"));
        for piece in pieces {
            if let OutputPiece::Data { data, .. } = piece {
                screen.push_str(&String::from_utf8_lossy(&data));
            }
        }
    }
    screen
}

async fn dropped_read_loses_no_output(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let line = Some("i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo $i; done".to_owned());
    let order = TerminalRequest { command: line, ..terminal_request() };
    let terminal = service.open_terminal(&alice(), &info.sandbox.id, order).await.unwrap();
    let (mut output, mut screen) = (terminal.output(0).await.unwrap(), String::new());
    loop {
        // Like a caller that waits for something else at the same time, and gets that first.
        let pieces = tokio::select! {
            biased;
            pieces = output.next() => pieces.unwrap(),
            () = tokio::task::yield_now() => continue,
        };
        let Some(pieces) = pieces else { break };
        for piece in pieces {
            if let OutputPiece::Data { data, .. } = piece {
                screen.push_str(&String::from_utf8_lossy(&data));
            }
        }
    }
    assert_eq!(screen, (1..=300).map(|i| format!("{i}\r\n")).collect::<String>());
}

async fn terminal_runs_a_command_line(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let line = "test -t 0 && test -t 1 && echo \"a 'terminal'\"; exit 5".to_owned();
    let order = TerminalRequest { command: Some(line.clone()), ..terminal_request() };
    let mut terminal = service.open_terminal(&alice(), &info.sandbox.id, order).await.unwrap();
    assert_eq!(terminal.wait().await.unwrap().exit_code, 5);
    assert_eq!(read_until(&terminal, "terminal").await, "a 'terminal'\r\n");
    let listed = service.commands(&alice(), &info.sandbox.id, ANY_TAG, 1).await.unwrap();
    assert_eq!(listed[0].command, line);
    let order = TerminalRequest { command: Some(String::new()), ..terminal_request() };
    let refused = service.open_terminal(&alice(), &info.sandbox.id, order).await.unwrap_err();
    assert!(matches!(refused, SandboxError::Invalid { field: "command", .. }), "{refused}");
}

async fn terminal_takes_input_and_is_resized_and_closed(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let mut terminal = service.open_terminal(&alice(), id, terminal_request()).await.unwrap();
    service.write_terminal(&alice(), id, &terminal.id, b"stty size; tty\n".to_vec()).await.unwrap();
    let screen = read_until(&terminal, "/dev/pts/").await;
    assert!(screen.contains("24 80"), "{screen}");
    service.resize_terminal(&alice(), id, &terminal.id, Size { cols: 132, rows: 43 }).await.unwrap();
    service.write_terminal(&alice(), id, &terminal.id, b"stty size\n".to_vec()).await.unwrap();
    read_until(&terminal, "43 132").await;
    service.close_terminal(&alice(), id, &terminal.id).await.unwrap();
    assert_eq!(terminal.wait().await.unwrap().exit_code, 137);
    service.close_terminal(&alice(), id, &terminal.id).await.unwrap();
    let refused = service.write_terminal(&alice(), id, &terminal.id, vec![1]).await.unwrap_err();
    assert!(matches!(refused, SandboxError::CommandEnded { .. }), "{refused}");
    let refused = service.write_terminal(&alice(), id, "pty-1", vec![1]).await.unwrap_err();
    assert!(matches!(refused, SandboxError::NoTerminal { .. }), "{refused}");
    let zero = Size { cols: 0, rows: 24 };
    let refused = service.resize_terminal(&alice(), id, &terminal.id, zero).await.unwrap_err();
    assert!(matches!(refused, SandboxError::Invalid { field: "cols", .. }), "{refused}");
}

async fn terminal_limit_is_enforced(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let id = info.sandbox.id.as_str();
    let mut open = Vec::new();
    for _ in 0..5 {
        open.push(service.open_terminal(&alice(), id, terminal_request()).await.unwrap());
    }
    let refused = service.open_terminal(&alice(), id, terminal_request()).await.unwrap_err();
    assert!(matches!(refused, SandboxError::TooManyTerminals { limit: 5 }), "{refused}");
    service.close_terminal(&alice(), id, &open[0].id).await.unwrap();
    wait_until("there is room again", async || {
        service.open_terminal(&alice(), id, terminal_request()).await.is_ok()
    })
    .await;
}
