//! User who runs the command.

use std::{env, fs};

/// Returns the name of the user from the environment or `/etc/passwd`, or else the numeric user id.
pub(crate) fn name() -> String {
    let from_environment = |variable: &&str| env::var(variable).ok().filter(|name| !name.is_empty());
    ["USER", "LOGNAME"].iter().find_map(from_environment).unwrap_or_else(|| {
        let uid = rustix::process::getuid().as_raw();
        // Full names may be in any encoding; user names are ASCII.
        let accounts = fs::read("/etc/passwd").unwrap_or_default();
        name_of(uid, &String::from_utf8_lossy(&accounts)).unwrap_or_else(|| uid.to_string())
    })
}

/// Returns the name of the user with this id. `accounts` has lines of the form `name:password:uid:…`.
fn name_of(uid: u32, accounts: &str) -> Option<String> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let number: u32 = fields.nth(1)?.parse().ok()?;
        (number == uid).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_user_id() {
        let accounts =
            "root:x:0:0::/:/bin/sh\n# comment\n+::::::\n:x:7:7::/:\nada:x:1000:1000:Ada:/home/ada:/bin/sh\n";
        assert_eq!(name_of(0, accounts).as_deref(), Some("root"));
        assert_eq!(name_of(1000, accounts).as_deref(), Some("ada"));
        assert_eq!(name_of(7, accounts), None);
        assert_eq!(name_of(100, accounts), None);
    }
}
