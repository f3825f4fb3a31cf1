//! Bytes as text in lines of JSON: standard base64, both ways.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub fn encode_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let is_there = digit <= chunk.len();
            let value = (bits >> (18 - 6 * digit)) & 63;
            text.push(if is_there { char::from(ALPHABET[value as usize]) } else { '=' });
        }
    }
    text
}

/// Standard base64 with or without padding.
pub fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0);
    let digits = text.trim_end_matches('=');
    if digits.len() % 4 == 1 {
        return None;
    }
    for digit in digits.bytes() {
        let value = ALPHABET.iter().position(|known| *known == digit)?;
        bits = (bits << 6 | u32::try_from(value).ok()?) & 0xff_ffff;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded() {
        for (text, bytes) in [("", &b""[..]), ("AA==", b"\0"), ("/+8=", b"\xff\xef"), ("aGVsbG8", b"hello")] {
            assert_eq!(decode_base64(text).as_deref(), Some(bytes), "{text}");
        }
        assert_eq!(decode_base64("A"), None);
        assert_eq!(decode_base64("a b="), None);
    }

    #[test]
    fn bytes_are_encoded_as_everywhere() {
        for (bytes, text) in
            [(&b""[..], ""), (b"\0", "AA=="), (b"\xff\xef", "/+8="), (b"hello", "aGVsbG8="), (b"abc", "YWJj")]
        {
            assert_eq!(encode_base64(bytes), text);
        }
    }
}
