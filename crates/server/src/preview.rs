//! Previews: HTTP servers that run in sandboxes, shown to clients that have a preview token instead of a key.
//!
//! - `route`: `POST /api/v1/sandboxes/{id}/ports/{port}`, which creates a [`token`].
//! - `dispatch`: decides for each request of the API's listener, by its host and path, whether it is for a preview.
//! - `access`: the token of a request, and the key that created it.
//! - `proxy`: forwards a request to the sandbox, over a connection of the `pool`; `tunnel` copies the bytes of WebSockets.
//!
//! The *program* is the HTTP server in the sandbox; the *client* is the browser or other HTTP client of the preview.
//!
//! A preview has a host of its own (*host form*), so a browser keeps its pages apart from those of the API and of other
//! previews. The *path form* below `/preview/` has the host of the API; browsers keep its pages apart because each
//! response has a sandboxing `Content-Security-Policy`. Connections lead to the loopback of the sandbox and nowhere else.

mod access;
mod client_body;
mod cookie;
pub(crate) mod dispatch;
mod headers;
mod host;
mod page;
mod path;
mod pool;
mod program_body;
mod proxy;
mod query;
pub(crate) mod route;
pub(crate) mod state;
mod stream;
mod target;
mod token;
mod tunnel;
