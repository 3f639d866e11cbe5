//! Id of a request, and address of its client, which handlers extract.

use std::net::IpAddr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::error::ApiError;

/// Id of a request, which is in its response, log lines and errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(pub String);

impl<S: Send + Sync> FromRequestParts<S> for RequestId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let id = parts.extensions.get().cloned();
        id.ok_or_else(|| ApiError::internal("a route outside the router asked for the request's id"))
    }
}

/// IP address of the client, or of a proxy in front of the server.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);
