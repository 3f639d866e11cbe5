//! Requests to a server, one at a time, and streams.

use std::cell::RefCell;
use std::io::{self, Read};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, RETRY_AFTER};
use hyper::http::request::Builder;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::timeout;
use workspace_api::error_codes;
use workspace_api::processes::KillCommand;
use workspace_api::system::Health;

use super::connection::ServerConnection;
use super::{ApiError, RequestError, ServerUrl};
use crate::error::{CommandError, Result};
use crate::text;

/// Maximum `Retry-After` that the client waits for; a longer one is an error.
const RETRY_MAX: Duration = Duration::from_secs(70);
/// Time limit for finding out whether a workspace server listens at an address.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the response to a request that kills a command: the user waits to press Ctrl-C again.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum wait that is announced on stderr.
const ANNOUNCED_WAIT_MIN: Duration = Duration::from_secs(2);

/// Path that needs a key of any role.
const KEY_CHECK_PATH: &str = "/api/v1/sandboxes?limit=1";

/// Size of a chunk of an upload in bytes.
const CHUNK_SIZE: usize = 256 << 10;
/// Number of chunks that wait to be sent.
const CHUNKS_QUEUED: usize = 4;

type Sender = SendRequest<Full<Bytes>>;
/// Additional header of a request.
type Header = (HeaderName, String);

/// Client of a server.
pub(crate) struct Client {
    pub(crate) server: ServerUrl,
    /// Idle connection for the next request.
    idle: RefCell<Option<Sender>>,
}

impl Client {
    pub(crate) fn new(server: ServerUrl) -> Self {
        Self { server, idle: RefCell::default() }
    }

    /// Sends a GET request and parses the response.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.try_get(path).await.map_err(|failure| self.explain(failure))
    }

    /// Like [`Self::get`], for a caller that handles some failures itself.
    pub(crate) async fn try_get<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        self.request_json(Method::GET, path, None, None).await
    }

    /// Sends a PUT request with a JSON body and parses the response.
    pub(crate) async fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        let sent = async { self.request_json(Method::PUT, path, Some(json(body)?), None).await };
        sent.await.map_err(|failure| self.explain(failure))
    }

    /// Like [`Self::put`], with a header.
    pub(crate) async fn put_with_header<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        header: Header,
    ) -> Result<T> {
        let sent = async { self.request_json(Method::PUT, path, Some(json(body)?), Some(header)).await };
        sent.await.map_err(|failure| self.explain(failure))
    }

    /// Sends a POST request with a JSON body and parses the response.
    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.try_post(path, body).await.map_err(|failure| self.explain(failure))
    }

    /// Like [`Self::post`], for a caller that handles some failures itself.
    pub(crate) async fn try_post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, RequestError> {
        self.request_json(Method::POST, path, Some(json(body)?), None).await
    }

    /// Sends a request that kills a command or closes a terminal. Fails if there is no response within
    /// [`KILL_TIMEOUT`].
    pub(crate) async fn request_with_timeout(
        &self,
        method: Method,
        path: &str,
        body: Option<&KillCommand>,
    ) -> Result<(), RequestError> {
        let body = body.map(json).transpose()?;
        let sent = timeout(KILL_TIMEOUT, self.request_json(method, path, body, None)).await;
        sent.unwrap_or_else(|_| {
            let reason = format!("no response for {} s", KILL_TIMEOUT.as_secs());
            Err(RequestError::Disconnected(reason))
        })
    }

    /// Sends a PATCH request with a JSON body and parses the response.
    pub(crate) async fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        let sent = async { self.request_json(Method::PATCH, path, Some(json(body)?), None).await };
        sent.await.map_err(|failure| self.explain(failure))
    }

    /// Sends a DELETE request and parses the response.
    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.try_delete(path, None).await.map_err(|failure| self.explain(failure))
    }

    /// Like [`Self::delete`], with a header, for a caller that handles some failures itself.
    pub(crate) async fn try_delete<T: DeserializeOwned>(
        &self,
        path: &str,
        header: Option<Header>,
    ) -> Result<T, RequestError> {
        self.request_json(Method::DELETE, path, None, header).await
    }

    /// Sends a request. After a rate limit error, waits and sends it again. An empty response is parsed as `null`.
    async fn request_json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        header: Option<Header>,
    ) -> Result<T, RequestError> {
        loop {
            let failure = match self.request_once(&method, path, body.as_ref(), header.clone()).await {
                Ok(bytes) => return parse(if bytes.is_empty() { b"null" } else { &bytes }),
                Err(failure) => failure,
            };
            let Some(wait) = retry_after(&failure).filter(|wait| *wait <= RETRY_MAX) else {
                return Err(failure);
            };
            if wait >= ANNOUNCED_WAIT_MIN {
                text::print_stderr(&format!(
                    "note: the rate limit of the key is reached; waiting {} s",
                    wait.as_secs()
                ));
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Sends a request without retries, and returns the body of the response.
    async fn request_once(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Bytes>,
        header: Option<Header>,
    ) -> Result<Bytes, RequestError> {
        let (response, sender) = self.send(method, path, body, header.as_slice()).await?;
        let response = check_status(response).await?;
        let bytes = read_body(response).await?;
        *self.idle.borrow_mut() = Some(sender);
        Ok(bytes)
    }

    /// Sends a GET request and parses the response whatever its status. `None` if it is JSON of another shape.
    pub(crate) async fn probe<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, RequestError> {
        let (response, sender) = self.send(&Method::GET, path, None, &[]).await?;
        let status = response.status();
        let bytes = read_body(response).await?;
        *self.idle.borrow_mut() = Some(sender);
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_data() => Ok(None),
            Err(_) => Err(RequestError::Api(Box::new(ApiError::new(status, None, &bytes)))),
        }
    }

    /// Sends a small request that needs a key, without retries. The error is `UNAUTHORIZED` if the server does not
    /// accept the key of this client.
    pub(crate) async fn check_key(&self) -> Result<(), RequestError> {
        self.request_once(&Method::GET, KEY_CHECK_PATH, None, None).await.map(drop)
    }

    /// Returns false if nothing listens at the address, or another program than a workspace server. Such a program may
    /// accept the connection and never respond, so there is a time limit.
    pub(crate) async fn is_workspace_server(&self, limit: Duration) -> bool {
        matches!(timeout(limit, self.probe::<Health>("/health")).await, Ok(Ok(Some(_))))
    }

    /// Sends a GET request and returns the body of the response, which may be a stream without an end. No other request
    /// uses the connection.
    pub(crate) async fn open(&self, path: &str, headers: &[Header]) -> Result<Incoming, RequestError> {
        Ok(self.open_with_headers(path, headers).await?.into_body())
    }

    /// Sends the request of [`Self::open`], and returns the response with its headers.
    pub(crate) async fn open_with_headers(
        &self,
        path: &str,
        headers: &[Header],
    ) -> Result<Response<Incoming>, RequestError> {
        let (response, sender) = self.send(&Method::GET, path, None, headers).await?;
        let response = check_status(response).await?;
        // Hyper closes a connection whose sender is dropped, so a task holds it until the response is read.
        tokio::spawn(async move {
            let mut sender = sender;
            drop(sender.ready().await);
        });
        Ok(response)
    }

    /// Uploads the content of `source` as it is read, and parses the response.
    pub(crate) async fn upload<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        source: Box<dyn Read + Send>,
    ) -> Result<T> {
        self.try_upload(method, path, source).await.map_err(|failure| failure.explain(&self.server))
    }

    /// Like [`Self::upload`], for a caller that handles some failures itself.
    pub(crate) async fn try_upload<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        source: Box<dyn Read + Send>,
    ) -> Result<T, RequestError> {
        self.try_upload_with(method, path, None, source).await
    }

    /// Like [`Self::try_upload`], with another header.
    pub(crate) async fn try_upload_with<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        header: Option<(HeaderName, String)>,
        source: Box<dyn Read + Send>,
    ) -> Result<T, RequestError> {
        parse(&read_body(self.upload_and_open(method, path, header, source).await?).await?)
    }

    /// Uploads the content of `source` as it is read, and returns the response, whose body may be a stream.
    pub(super) async fn upload_and_open(
        &self,
        method: &Method,
        path: &str,
        header: Option<(HeaderName, String)>,
        source: Box<dyn Read + Send>,
    ) -> Result<Response<Incoming>, RequestError> {
        let lost = |error: hyper::Error| RequestError::Disconnected(error.to_string());
        let stream = ServerConnection::connect(&self.server).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        tokio::spawn(async move { drop(connection.await) });
        let mut request = self.request_builder(method, path).header(CONTENT_TYPE, "application/octet-stream");
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let request = request.body(StreamBody::new(read_chunks(source)));
        let request = request.map_err(|error| RequestError::Unreachable(format!("bad request: {error}")))?;
        check_status(sender.send_request(request).await.map_err(lost)?).await
    }

    /// Sends a request on the idle connection or a new one. Returns the response, and the sender for the next request
    /// on the connection.
    async fn send(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Bytes>,
        headers: &[Header],
    ) -> Result<(Response<Incoming>, Sender), RequestError> {
        let request = self.request(method, path, body, headers)?;
        let idle = self.idle.borrow_mut().take();
        if let Some(mut sender) = idle
            && sender.ready().await.is_ok()
        {
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, sender)),
                // The server had closed the idle connection, and has not received the request.
                Err(mut failed) => match failed.take_message() {
                    Some(request) => return self.send_on_new_connection(request).await,
                    None => return Err(RequestError::Disconnected(failed.into_error().to_string())),
                },
            }
        }
        let request = self.request(method, path, body, headers)?;
        self.send_on_new_connection(request).await
    }

    async fn send_on_new_connection(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Sender), RequestError> {
        let stream = ServerConnection::connect(&self.server).await?;
        let lost = |error: hyper::Error| RequestError::Disconnected(error.to_string());
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        tokio::spawn(async move {
            // The error is also returned by the request that waits for a response.
            drop(connection.await);
        });
        let response = sender.send_request(request).await.map_err(lost)?;
        Ok((response, sender))
    }

    fn request(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Bytes>,
        headers: &[Header],
    ) -> Result<Request<Full<Bytes>>, RequestError> {
        let mut request = self.request_builder(method, path);
        for (name, value) in headers {
            request = request.header(name, value.as_str());
        }
        let bytes = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                body.clone()
            }
            None => Bytes::new(),
        };
        request
            .body(Full::new(bytes))
            .map_err(|error| RequestError::Unreachable(format!("bad request: {error}")))
    }

    /// Returns the builder of a request with URI and the headers `Host` and `Authorization`.
    fn request_builder(&self, method: &Method, path: &str) -> Builder {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.server.prefix))
            .header(HOST, self.server.authority());
        match &self.server.key {
            Some(key) => request.header(AUTHORIZATION, format!("Bearer {key}")),
            None => request,
        }
    }

    /// Converts a failure to an error for the user.
    pub(crate) fn explain(&self, failure: RequestError) -> CommandError {
        failure.explain(&self.server)
    }
}

/// Returns the content of a source as a stream. It is read in a thread, because reads may block.
fn read_chunks(
    mut source: Box<dyn Read + Send>,
) -> impl futures_util::Stream<Item = io::Result<Frame<Bytes>>> {
    let (sender, receiver) = mpsc::channel(CHUNKS_QUEUED);
    std::thread::spawn(move || {
        let mut buffer = vec![0; CHUNK_SIZE];
        loop {
            let piece = match source.read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => Ok(Frame::data(Bytes::copy_from_slice(&buffer[..read]))),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let last = piece.is_err();
            if sender.blocking_send(piece).is_err() || last {
                return;
            }
        }
    });
    futures_util::stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)))
}

/// Returns `Retry-After` of a rate limit error.
fn retry_after(failure: &RequestError) -> Option<Duration> {
    match failure {
        RequestError::Api(error) if failure.is(error_codes::RATE_LIMITED) => error.retry_after,
        _ => None,
    }
}

fn json(body: &impl Serialize) -> Result<Bytes, RequestError> {
    let json = serde_json::to_vec(body);
    json.map(Bytes::from).map_err(|error| RequestError::Unreachable(format!("bad request: {error}")))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RequestError> {
    serde_json::from_slice(bytes).map_err(|error| match error.is_data() {
        true => RequestError::Malformed(error.to_string()),
        false => RequestError::Disconnected(format!("a response is not JSON: {error}")),
    })
}

async fn check_status(response: Response<Incoming>) -> Result<Response<Incoming>, RequestError> {
    if response.status().is_success() {
        return Ok(response);
    }
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let status = response.status();
    let body = read_body(response).await?;
    Err(RequestError::Api(Box::new(ApiError::new(status, retry_after.map(Duration::from_secs), &body))))
}

async fn read_body(response: Response<Incoming>) -> Result<Bytes, RequestError> {
    let body = response
        .into_body()
        .collect()
        .await
        .map_err(|error| RequestError::Disconnected(error.to_string()))?;
    Ok(body.to_bytes())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_program_that_never_responds_is_no_workspace_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = Client::new(ServerUrl::parse(&url).unwrap());
        assert!(!client.is_workspace_server(Duration::from_millis(200)).await);
    }
}
