//! Extractor of the options of a request for a file.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::caller::{Caller, Credential};
use crate::error::ApiError;
use crate::extract::Query;

/// Options in the query. The query of a signed URL is its signature, so it has no options.
pub(super) struct FileQuery<T>(pub(super) T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequestParts<S> for FileQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let credential = parts.extensions.get::<Caller>().and_then(Caller::credential);
        if matches!(credential, Some(Credential::SignedUrl { .. })) {
            return Ok(Self(T::default()));
        }
        let Query(options) = Query::from_request_parts(parts, state).await?;
        Ok(Self(options))
    }
}
