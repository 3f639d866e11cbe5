//! The lazy mount from outside: through the kernel, as root, as an ordinary user and in a user namespace.

mod caching;
mod content;
mod daemon;
mod damage;
mod mountpoints;
mod overlay;
mod roles;
mod root;
mod support;
mod users;
