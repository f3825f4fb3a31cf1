//! Names the setting when a unary request is above the decode limit.
//!
//! tonic refuses such a message before any handler sees it, with a status that knows
//! the number but not where to change it. This wrapper rewrites that one status.

use std::task::{Context, Poll};

use futures_util::{FutureExt, future::BoxFuture};
use tonic::{
    Code, Status,
    codegen::{Service, http},
    server::NamedService,
};

use super::status;

/// Wraps the generated service.
#[derive(Clone, Debug)]
pub struct NamesTheSetting<S> {
    pub inner: S,
    pub request_bytes: usize,
}

impl<S: NamedService> NamedService for NamesTheSetting<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, Q, R> Service<http::Request<Q>> for NamesTheSetting<S>
where
    S: Service<http::Request<Q>, Response = http::Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Q>) -> Self::Future {
        let limit = self.request_bytes;
        let answer = self.inner.call(request);
        async move {
            let mut response = answer.await?;
            let said = Status::from_header_map(response.headers());
            // No handler of ours answers with this code.
            if said.is_some_and(|status| status.code() == Code::OutOfRange) {
                let named = status::oversize(limit).into_http::<()>();
                for (name, value) in named.headers() {
                    response.headers_mut().insert(name.clone(), value.clone());
                }
            }
            Ok(response)
        }
        .boxed()
    }
}
