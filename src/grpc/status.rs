//! Status codes, with details that a client can act on.

use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::{Limits, pb, wire::Failed};
use crate::{ingest::Ingest, store::StoreError};

/// When a client should come back after "unavailable".
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Of a name that came from outside, so that no answer grows with it.
const NAME_SHOWN: usize = 64;

/// The beginning of a name that came from outside, quoted.
pub fn shown(name: &str) -> String {
    format!("{:?}", name.chars().take(NAME_SHOWN).collect::<String>())
}

pub fn no_such_topic(name: &str, ingest: &Ingest) -> Status {
    let known: Vec<&str> = ingest.topic_names().collect();
    Status::not_found(format!("there is no topic {} here; configured are: {}", shown(name), known.join(", ")))
}

pub fn bad_field(field: &str, detail: String) -> Status {
    let details = ErrorDetails::with_bad_request_violation(field, &detail);
    Status::with_error_details(Code::InvalidArgument, format!("{field}: {detail}"), details)
}

pub fn no_events() -> Status {
    bad_field("events", "a request has at least one event".to_owned())
}

pub fn too_many_events(count: usize, limits: &Limits) -> Status {
    let most = limits.request_events;
    bad_field("events", format!("{count} events, limits.request_events allows {most}; send several requests"))
}

/// What the decoder says of a message above the limit, with the setting's name.
pub fn oversize(limit: usize) -> Status {
    let message = format!(
        "the message is larger than limits.request_bytes allows ({limit} bytes); send fewer events a request, \
         or raise the setting"
    );
    Status::out_of_range(message)
}

pub fn unavailable(message: String) -> Status {
    let details = ErrorDetails::with_retry_info(Some(RETRY_AFTER));
    Status::with_error_details(Code::Unavailable, message, details)
}

/// For a stream that the sidecar ends because it drains.
pub fn stopping() -> Status {
    unavailable(
        "this sidecar is stopping; publish what was not answered again, elsewhere or later".to_owned(),
    )
}

pub fn store_error(error: StoreError) -> Status {
    if error.is_passing() { unavailable(error.to_string()) } else { Status::internal(error.to_string()) }
}

pub fn failed(failed: Failed) -> Status {
    match failed {
        Failed::Unavailable(message) => {
            unavailable(format!("{message}; publishing the same request again is safe"))
        }
        Failed::Broken(message) => Status::internal(message),
    }
}

/// The same for one request of a stream, which goes on.
pub fn failure(status: &Status) -> pb::Failure {
    let retry = status.get_details_retry_info().and_then(|info| info.retry_delay);
    pb::Failure {
        code: i32::from(status.code()).unsigned_abs(),
        message: status.message().to_owned(),
        retry_after_ms: retry.map_or(0, |delay| u32::try_from(delay.as_millis()).unwrap_or(u32::MAX)),
    }
}
