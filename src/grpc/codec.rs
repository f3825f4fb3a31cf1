//! The protobuf codec, with a look at each message before it is decoded.
//!
//! A message of 4 MiB can hold two million empty events, and each of them takes
//! hundreds of bytes once it is decoded: half a gigabyte for one request, before any
//! handler could refuse it. So the fields of a message are counted first.

use std::marker::PhantomData;

use bytes::Buf;
use prost::Message;
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder},
};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// Fields of one message, at its top level: far more than any setting allows events.
const FIELDS_MAX: usize = 65_536;

/// What generated code uses in place of tonic's own codec.
pub struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        BoundedCodec(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(ProstCodec::<T, U>::default().decoder())
    }
}

pub struct BoundedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        if has_too_many_fields(buffer.chunk()) {
            let message = format!("the message has more than {FIELDS_MAX} events; send several requests");
            return Err(Status::invalid_argument(message));
        }
        self.0.decode(buffer)
    }
}

/// Walks over the fields without looking into them. What is malformed is left to the
/// decoder, which says what is wrong with it.
fn has_too_many_fields(mut message: &[u8]) -> bool {
    for _ in 0..FIELDS_MAX {
        if message.is_empty() || skip_field(&mut message).is_none() {
            return false;
        }
    }
    !message.is_empty()
}

fn skip_field(message: &mut &[u8]) -> Option<()> {
    const FIXED_64: u64 = 1;
    const DELIMITED: u64 = 2;
    const FIXED_32: u64 = 5;
    let size = match varint(message)? & 7 {
        0 => varint(message).map(|_| 0)?,
        FIXED_64 => 8,
        DELIMITED => usize::try_from(varint(message)?).ok()?,
        FIXED_32 => 4,
        _ => return None,
    };
    *message = message.get(size..)?;
    Some(())
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    prost::encoding::decode_varint(message).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::pb;

    #[test]
    fn fields_are_counted_without_being_decoded() {
        let events = |count: usize| [&b"\x0a\x01t"[..], &b"\x12\x00".repeat(count)].concat();
        assert!(!has_too_many_fields(&events(FIELDS_MAX - 1)));
        assert!(has_too_many_fields(&events(FIELDS_MAX)));
    }

    #[test]
    fn real_and_malformed_messages_go_to_the_decoder() {
        let event = pb::Event {
            entity: "e".into(),
            sequence: Some(7),
            data: vec![1; 300].into(),
            ..Default::default()
        };
        let request = pb::PublishStreamRequest { number: 9, topic: "t".into(), events: vec![event; 10] };
        assert!(!has_too_many_fields(&request.encode_to_vec()));
        for bytes in [&b"\xff\xff\xff"[..], b"\x0a\x7fshort", b"\x0b", b""] {
            assert!(!has_too_many_fields(bytes));
        }
    }
}
