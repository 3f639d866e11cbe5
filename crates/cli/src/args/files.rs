//! Files and ports of sandboxes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};

use super::server::{Server, duration};

pub(super) const EXAMPLES: &str = "\
Examples:
  workspace files ls work -l
  echo hello | workspace files put work notes.txt
  workspace files cat work notes.txt
  workspace files url work report.pdf --expires 15m
  workspace files watch work src --recursive";

#[derive(Debug, Subcommand)]
pub(crate) enum FilesCommand {
    Ls(FilesLs),
    /// Print a file
    #[command(
        after_help = "Examples:\n  workspace files cat work notes.txt\n  workspace files cat work /etc/hostname"
    )]
    Cat {
        #[command(flatten)]
        at: FilesAt,
    },
    Put(FilesPut),
    /// Copy a file to a local path
    ///
    /// The local file is replaced when all content has arrived. `workspace cp` also copies directories.
    #[command(after_help = "\
Examples:
  workspace files get work results.json
  workspace files get work /etc/hostname host.txt")]
    Get {
        #[command(flatten)]
        at: FilesAt,
        /// Local path [default: the name of the file, in the current directory]
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
    /// Remove a file or directory
    #[command(
        after_help = "Examples:\n  workspace files rm work notes.txt\n  workspace files rm -r work build"
    )]
    Rm {
        /// Remove a directory with its content
        #[arg(short, long)]
        recursive: bool,
        #[command(flatten)]
        at: FilesAt,
    },
    /// Create a directory
    #[command(
        after_help = "Examples:\n  workspace files mkdir work src\n  workspace files mkdir -p work a/b/c"
    )]
    Mkdir {
        /// Create missing parents, and succeed if the directory exists
        #[arg(short, long)]
        parents: bool,
        #[command(flatten)]
        at: FilesAt,
    },
    /// Rename a file or directory
    #[command(after_help = "\
Examples:
  workspace files mv work draft.txt final.txt
  workspace files mv --replace work new.txt old.txt")]
    Mv {
        /// Replace a file at the new path
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        at: FilesAt,
        /// New path
        #[arg(value_name = "NEW_PATH")]
        to: String,
    },
    /// Copy a file or directory inside the sandbox
    ///
    /// `workspace cp` copies between the sandbox and your machine.
    #[command(after_help = "\
Examples:
  workspace files cp work notes.txt notes.bak
  workspace files cp -r work src /tmp/src
  workspace files cp --replace work new.txt old.txt")]
    Cp {
        /// Copy a directory with its content
        #[arg(short, long)]
        recursive: bool,
        /// Replace a file at the new path
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        at: FilesAt,
        /// Path of the copy
        #[arg(value_name = "NEW_PATH")]
        to: String,
    },
    Chmod(FilesChmod),
    /// Show kind, permissions, size, times, etag and owner of a file or directory
    #[command(after_help = "\
Examples:
  workspace files stat work notes.txt
  workspace files stat --no-follow work latest
  workspace --json files stat work notes.txt | jq -r .etag")]
    Stat {
        /// Describe a symlink itself
        #[arg(long)]
        no_follow: bool,
        #[command(flatten)]
        at: FilesAt,
    },
    Batch(FilesBatch),
    Url(FilesUrl),
    /// Print changes of a directory or a file as they happen
    ///
    /// A line has the kind of the change and the path relative to PATH. `dropped` means that changes were lost. The
    /// command ends when PATH is removed.
    #[command(after_help = "\
Examples:
  workspace files watch work src
  workspace --json files watch work --recursive /workspace")]
    Watch {
        /// Watch everything below a directory
        #[arg(short, long)]
        recursive: bool,
        #[command(flatten)]
        at: FilesAt,
    },
}

/// One file of a sandbox.
#[derive(Debug, Args)]
pub(crate) struct FilesAt {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Path in the sandbox; a relative path starts in /workspace
    #[arg(value_name = "PATH")]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// List a directory
///
/// Names of directories end in `/`. Names with special characters are printed in double quotes, with escapes. PATH
/// may be written that way, too; put single quotes around it for the shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace files ls work
  workspace files ls work src -l
  workspace files ls work /etc -R")]
pub(crate) struct FilesLs {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Path in the sandbox; a relative path starts in /workspace
    #[arg(value_name = "PATH", default_value = "/workspace", hide_default_value = true)]
    pub(crate) path: String,
    /// Also print mode, size, modification time and targets of symlinks
    #[arg(short, long)]
    pub(crate) long: bool,
    /// List subdirectories recursively, down to 32 levels
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Write a file
///
/// The file in the sandbox is replaced when all content has arrived. `workspace cp` also copies directories.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  echo hello | workspace files put work notes.txt
  workspace files put -p work src/run.sh run.sh --mode 0755
  workspace files put work notes.txt --new < notes.txt")]
pub(crate) struct FilesPut {
    #[command(flatten)]
    pub(crate) at: FilesAt,
    /// Local file, or `-` for stdin
    #[arg(value_name = "FILE", default_value = "-", hide_default_value = true, value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Permission bits in octal [default: those of the present file, or 0644]
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// Create missing parent directories
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Fail if there is a file
    #[arg(long, conflicts_with = "if_match")]
    pub(crate) new: bool,
    /// Fail unless the present file has this etag, as `--json files ls` prints it
    #[arg(long, value_name = "ETAG")]
    pub(crate) if_match: Option<String>,
}

/// Set the permissions of files and directories
///
/// The operations are performed in order, up to the first that fails.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace files chmod work 0755 run.sh
  workspace files chmod work 0600 .env secrets/key")]
pub(crate) struct FilesChmod {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Permission bits in octal
    #[arg(value_name = "MODE")]
    pub(crate) mode: String,
    /// Paths in the sandbox; relative paths start in /workspace
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Change several files with one request
///
/// Each line of FILE is an operation in JSON, with the fields of the API; `{"operations": […]}` works, too. The
/// operations (mkdir, write, move, copy, chmod, remove) are performed in order, up to the first that fails. Relative
/// paths start in /workspace. A commit contains all of a batch or nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace files batch work changes.jsonl
  echo '{\"op\": \"move\", \"from\": \"draft\", \"to\": \"final\"}' | workspace files batch work
  jq -c '{op: \"remove\", path: ., force: true}' paths.json | workspace files batch work")]
pub(crate) struct FilesBatch {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Local file, or `-` for stdin
    #[arg(value_name = "FILE", default_value = "-", hide_default_value = true, value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Print a URL with which everybody can read or write one file, without a key
///
/// The URL ends when it expires, with its key, and with the sandbox.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  curl -o report.pdf \"$(workspace files url work report.pdf)\"
  curl -T data.csv \"$(workspace files url work data.csv --upload --max-size 10m --expires 15m)\"
  workspace --json files url work report.pdf | jq -r .expiresAt")]
pub(crate) struct FilesUrl {
    #[command(flatten)]
    pub(crate) at: FilesAt,
    /// Allow an upload (`PUT`) instead of a download
    #[arg(long)]
    pub(crate) upload: bool,
    /// Maximum size of an upload, such as 512k or 10m
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "upload")]
    pub(crate) max_size: Option<u64>,
    /// Lifetime, at most a day [default: an hour]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) expires: Option<Duration>,
}

/// Parses a number of bytes, with a unit `k`, `m` or `g` in powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || "expected a size such as `4096`, `512k`, `10m` or `1g`".to_owned();
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        _ => return Err(wrong()),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_number).ok_or_else(wrong)?;
    number.checked_mul(unit).ok_or_else(wrong)
}

/// List the TCP ports on which programs in a sandbox listen
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  workspace ports work\n  workspace --json ports work")]
pub(crate) struct Ports {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Forward a local TCP port to a port of a sandbox
///
/// Listens on 127.0.0.1 until it is interrupted. Every connection is forwarded to the same port of the sandbox's
/// loopback, or to PORT; the sandbox needs no network. Nothing else on the network can connect.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace port-forward work 8000
  workspace port-forward work 3000:80
  workspace port-forward work 0:5432")]
pub(crate) struct PortForward {
    /// Sandbox: its id, a prefix of it, or its name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Local port, 0 for any free one, and port of the sandbox
    #[arg(value_name = "[LOCAL:]PORT", value_parser = port_pair)]
    pub(crate) ports: PortPair,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Local port, and port of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortPair {
    pub(crate) local: u16,
    pub(crate) remote: u16,
}

/// Parses `LOCAL:PORT`, or `PORT` for the same number on both sides.
fn port_pair(text: &str) -> Result<PortPair, String> {
    let (local, remote) = text.split_once(':').unwrap_or((text, text));
    let number =
        |text: &str| text.parse::<u16>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    match (number(local), number(remote).filter(|port| *port > 0)) {
        (Some(local), Some(remote)) => Ok(PortPair { local, remote }),
        _ => Err("expected a port such as `8000`, or two such as `3000:80`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("512k", 512 << 10), ("10M", 10 << 20), ("1g", 1 << 30)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "k", "-1", "+1", "1.5m", "1kb", "1 k", "99999999999g"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn one_port_is_for_both_sides() {
        for (text, local, remote) in [("8000", 8000, 8000), ("3000:80", 3000, 80), ("0:5432", 0, 5432)] {
            assert_eq!(port_pair(text), Ok(PortPair { local, remote }), "{text}");
        }
        for text in ["", "0", "80:0", "a", "80:", ":80", "1:2:3", "65536", "+80", "-1"] {
            assert!(port_pair(text).is_err(), "{text}");
        }
    }
}
