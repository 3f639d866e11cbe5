//! Users that commands run as.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::{Mode, Uid, chmod, chown};

use crate::privileges::Privileges;

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";
/// Maximum number of bytes of these files that are read.
const FILE_MAX: u64 = 1 << 20;
/// Maximum number of supplementary groups.
const GROUPS_MAX: usize = 1024;

/// User of a command, other than the user of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    uid: u32,
    gid: u32,
    /// Supplementary groups.
    groups: Vec<u32>,
    /// Name; the UID if it has none.
    pub(crate) name: String,
    pub(crate) home: String,
    privileges: Privileges,
}

/// Reason why a command cannot run as a user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UserError {
    #[error("commands of this sandbox cannot run as other users")]
    NotSupported,
    #[error("/etc/passwd has no user `{0}`")]
    Unknown(String),
    #[error("cannot read {path}: {source}")]
    Unreadable { path: &'static str, source: io::Error },
}

impl User {
    /// Finds a user by name or UID; `None` for the user of the agent itself, and for an empty name.
    pub(crate) fn find(requested: &str, privileges: Privileges) -> Result<Option<Self>, UserError> {
        if requested.is_empty() {
            return Ok(None);
        }
        let read = |path| read_file(path).map_err(|source| UserError::Unreadable { path, source });
        // With a UID, root can repair a damaged file.
        let users = match read(PASSWD) {
            Err(_) if requested.parse::<u32>().is_ok() => String::new(),
            users => users?,
        };
        let Some(user) = Self::parse(requested, &users, "", privileges) else {
            return Err(UserError::Unknown(requested.to_owned()));
        };
        if user.uid == rustix::process::getuid().as_raw() {
            return Ok(None);
        }
        if !privileges.can_switch_users() {
            return Err(UserError::NotSupported);
        }
        Ok(Self::parse(requested, &users, &read(GROUP)?, privileges))
    }

    /// Finds a user in the content of `/etc/passwd`, and its groups in that of `/etc/group`. A UID need not be
    /// there: such a user has the group 0 and the home directory `/`.
    fn parse(requested: &str, users: &str, groups: &str, privileges: Privileges) -> Option<Self> {
        let uid: Option<u32> = requested.parse().ok().filter(|uid| *uid != u32::MAX);
        let entry = users.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (name, _password) = (fields.next()?, fields.next()?);
            let (own_uid, gid): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            let (_comment, home) = (fields.next()?, fields.next()?);
            let is_requested = name == requested || uid == Some(own_uid);
            is_requested.then(|| (own_uid, gid, name.to_owned(), home.to_owned()))
        });
        let (uid, gid, name, home) =
            entry.or_else(|| uid.map(|uid| (uid, 0, uid.to_string(), "/".to_owned())))?;
        let groups = groups_of(&name, groups);
        Some(Self { uid, gid, groups, name, home, privileges })
    }

    /// Makes this user the owner of a file of the agent's user, and lets no other user open it.
    pub(crate) fn own_alone(&self, path: &CStr) -> io::Result<()> {
        let owner = Uid::from_raw(self.uid);
        self.privileges.with_all(|| {
            // The owner first: programs of the former one could change the mode again.
            chown(path, Some(owner), None)?;
            Ok(chmod(path, Mode::RUSR | Mode::WUSR)?)
        })
    }

    /// Switches this process to the user. Only root keeps capabilities.
    pub(crate) fn switch_to(&self) -> io::Result<()> {
        let check = |result: libc::c_long| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        self.privileges.raise()?;
        // System calls, not the functions of the C library: those change the ids of all threads, whose list they would
        // look for in memory that this process shares with the supervisor.
        // SAFETY: the list outlives the call, and the other calls take integers.
        unsafe {
            check(libc::syscall(libc::SYS_setgroups, self.groups.len(), self.groups.as_ptr()))?;
            check(libc::syscall(libc::SYS_setresgid, self.gid, self.gid, self.gid))?;
            check(libc::syscall(libc::SYS_setresuid, self.uid, self.uid, self.uid))?;
        }
        if self.uid == 0 { Ok(()) } else { self.privileges.drop_all() }
    }
}

/// Returns the ids of the groups that list a user.
fn groups_of(name: &str, groups: &str) -> Vec<u32> {
    let group = |line: &str| {
        let mut fields = line.split(':');
        let gid = fields.nth(2)?.parse().ok()?;
        fields.next()?.split(',').any(|member| member == name).then_some(gid)
    };
    groups.lines().filter_map(group).take(GROUPS_MAX).collect()
}

/// Reads a file of the sandbox, which may be anything. Empty if it does not exist.
fn read_file(path: &str) -> io::Result<String> {
    let mut options = File::options();
    // A pipe must not block the agent.
    let file = match options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        file => file?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nbroken\nalso:broken:x:0:::\n\
        web:x:33:34:web:/var/www:/bin/false\n7:x:8:8::/seven:/bin/sh\n";
    const GROUPS: &str = "root:x:0:\nadm:x:4:web,other\nbad\nlogs:x:5:web\nwebs:x:6:webs\n";

    /// Returns UID, GID, supplementary groups, name and home directory of a user.
    fn parse(requested: &str) -> Option<(u32, u32, Vec<u32>, String, String)> {
        let user = User::parse(requested, USERS, GROUPS, Privileges::default())?;
        Some((user.uid, user.gid, user.groups, user.name, user.home))
    }

    #[test]
    fn users_are_found_by_name_or_uid() {
        let web = || (33, 34, vec![4, 5], "web".to_owned(), "/var/www".to_owned());
        assert_eq!(parse("web"), Some(web()));
        assert_eq!(parse("33"), Some(web()));
        assert_eq!(parse("root"), Some((0, 0, Vec::new(), "root".to_owned(), "/root".to_owned())));
        assert_eq!(parse("7").map(|user| user.0), Some(8), "a name has precedence");
        assert_eq!(parse("1234"), Some((1234, 0, Vec::new(), "1234".to_owned(), "/".to_owned())));
        for unknown in ["nobody", "-1", "4294967295", "4294967296", "we", "broken"] {
            assert_eq!(parse(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn the_user_of_the_agent_needs_no_privileges() {
        let own = rustix::process::getuid().as_raw().to_string();
        // An empty name selects the user of the agent.
        assert_eq!(User::find("", Privileges::default()).unwrap(), None);
        assert_eq!(User::find(&own, Privileges::default()).unwrap(), None);
        let other = User::find("54321", Privileges::default()).unwrap_err();
        assert!(matches!(other, UserError::NotSupported), "{other}");
        let unknown = User::find("no such user", Privileges::default()).unwrap_err();
        assert!(matches!(unknown, UserError::Unknown(_)), "{unknown}");
    }
}
