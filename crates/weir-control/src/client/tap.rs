//! Implements the request behind `weir tap`, whose response is a stream.

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;

use super::{Client, Error, segment};
use crate::api::ApiError;

impl Client {
    /// Passes the lines that describe a service's exchanges to `show`, until the service is removed or the daemon
    /// exits.
    ///
    /// # Errors
    /// See [`Error`]. Also fails if the daemon exits or `show` fails.
    pub async fn tap<E: From<Error>>(
        &self,
        service: &str,
        json: bool,
        matches: &[String],
        mut show: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let stream = self.connect().await?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(Error::broken)?;
        let driver = tokio::spawn(connection);
        let matches = matches
            .iter()
            .map(|text| format!("match={}", segment(text)));
        let parameters: Vec<String> = json
            .then(|| "json".to_owned())
            .into_iter()
            .chain(matches)
            .collect();
        let path = format!("/v1/tap/{}?{}", segment(service), parameters.join("&"));
        let request = Request::builder()
            .uri(path)
            .header(header::HOST, "weir")
            .body(Empty::<Bytes>::new())
            .map_err(Error::broken)?;
        let response = sender.send_request(request).await.map_err(Error::broken)?;
        let status = response.status();
        let mut body = response.into_body();
        if status != StatusCode::OK {
            let bytes = body.collect().await.map_err(Error::broken)?.to_bytes();
            let error = match serde_json::from_slice::<ApiError>(&bytes) {
                Ok(error) => Error::Refused(error),
                Err(_) => Error::broken(status),
            };
            return Err(error.into());
        }
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(Error::broken)?;
            if let Some(data) = frame.data_ref() {
                show(data)?;
            }
        }
        driver.abort();
        Ok(())
    }
}
