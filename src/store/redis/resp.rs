//! Commands as Redis reads them, and what it answers, without a value for each: on the straight way (`straight.rs`)
//! thousands of both go by in a moment.
//!
//! What is answered is RESP2. Nothing is believed of it: what is no answer at all is an error.

use std::io;

use ::redis::{Cmd, Value};
use bytes::Bytes;

use super::reply::{self, unexpected};
use crate::store::{StoreError, StreamId};

/// What the answers to one transaction may have: far more than the largest batch is answered with.
const ANSWERS_BYTES_MAX: usize = 64 << 20;

/// One behind the other, to be sent at once.
#[derive(Default)]
pub struct Commands {
    bytes: Vec<u8>,
    count: usize,
    /// Arguments that the last one still lacks.
    lacks: usize,
}

impl Commands {
    /// In this room, which is empty, and made large enough for so many bytes.
    pub fn within(mut room: Vec<u8>, bytes: usize) -> Self {
        room.reserve(bytes);
        Commands { bytes: room, ..Default::default() }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// To be sent. There is nothing that could be lacking.
    pub fn into_bytes(self) -> Vec<u8> {
        debug_assert_eq!(self.lacks, 0, "an argument is missing");
        self.bytes
    }

    /// The next one begins; its name counts among its arguments.
    pub fn begin(&mut self, name: &str, args: usize) -> &mut Self {
        debug_assert_eq!(self.lacks, 0, "an argument is missing");
        self.count += 1;
        self.lacks = args;
        self.push_length(b'*', args);
        self.arg(name)
    }

    pub fn arg(&mut self, argument: impl AsRef<[u8]>) -> &mut Self {
        self.joined(&[argument.as_ref()])
    }

    pub fn args<A: AsRef<[u8]>>(&mut self, arguments: impl IntoIterator<Item = A>) -> &mut Self {
        for argument in arguments {
            self.arg(argument);
        }
        self
    }

    pub fn number(&mut self, number: u64) -> &mut Self {
        self.arg(itoa::Buffer::new().format(number))
    }

    /// One argument, of which the parts come one behind the other.
    pub fn joined(&mut self, parts: &[&[u8]]) -> &mut Self {
        debug_assert_ne!(self.lacks, 0, "it has all its arguments");
        self.lacks -= 1;
        self.push_length(b'$', parts.iter().map(|part| part.len()).sum());
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    /// One that was made elsewhere.
    pub fn add(&mut self, command: &Cmd) {
        debug_assert_eq!(self.lacks, 0, "an argument is missing");
        self.count += 1;
        self.bytes.extend_from_slice(&command.get_packed_command());
    }

    fn push_length(&mut self, kind: u8, length: usize) {
        match u8::try_from(length) {
            // Nearly all.
            Ok(length @ ..10) => self.bytes.extend_from_slice(&[kind, b'0' + length, b'\r', b'\n']),
            Ok(length @ 10..100) => {
                self.bytes.extend_from_slice(&[kind, b'0' + length / 10, b'0' + length % 10, b'\r', b'\n']);
            }
            _ => {
                self.bytes.push(kind);
                self.bytes.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
                self.bytes.extend_from_slice(b"\r\n");
            }
        }
    }
}

/// Answers as they come in: how many of them are there.
pub struct Incoming {
    /// Up to here they are whole.
    at: usize,
    /// Those that are awaited, what is inside of others among them.
    awaited: usize,
}

impl Incoming {
    pub fn new(answers: usize) -> Self {
        Incoming { at: 0, awaited: answers }
    }

    /// How many bytes of all that has come they are; nothing if they are not whole yet.
    pub fn length(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        advance(bytes, &mut self.at, &mut self.awaited)?;
        match self.awaited {
            0 => Ok(Some(self.at)),
            _ if bytes.len() > ANSWERS_BYTES_MAX => Err(malformed("an answer without an end")),
            _ => Ok(None),
        }
    }
}

/// Goes over so many answers, as far as they are there.
fn advance(bytes: &[u8], at: &mut usize, awaited: &mut usize) -> io::Result<()> {
    while *awaited > 0 {
        let Some(head) = Head::read(bytes, *at)? else { break };
        let Some(end) = head.end_of_text(bytes) else { break };
        *at = end;
        *awaited =
            (*awaited - 1).checked_add(head.items()).ok_or_else(|| malformed("a list without an end"))?;
    }
    Ok(())
}

fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

const END_OF_LINE: usize = 2;

/// How an answer begins.
struct Head {
    kind: u8,
    /// Its number, if it is one; of a text, or a list, how much belongs to it. Negative: nothing at all.
    number: i64,
    /// Its first line.
    line: std::ops::Range<usize>,
}

impl Head {
    /// Nothing if the line is not there yet.
    fn read(bytes: &[u8], at: usize) -> io::Result<Option<Head>> {
        let Some(length) = bytes[at..].iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let [kind, text @ .., b'\r'] = &bytes[at..at + length] else {
            return Err(malformed("an answer that is none"));
        };
        let line = at + 1..at + length - 1;
        let number = match kind {
            b'+' | b'-' => 0,
            b':' | b'$' | b'*' => number(text).ok_or_else(|| malformed("a number that is none"))?,
            _ => return Err(malformed("an answer of another protocol")),
        };
        Ok(Some(Head { kind: *kind, number, line }))
    }

    /// Behind the lines that are its own; nothing if they are not there yet.
    fn end_of_text(&self, bytes: &[u8]) -> Option<usize> {
        let text = if self.kind == b'$' { self.number } else { -1 };
        let text = usize::try_from(text).map_or(0, |text| text.saturating_add(END_OF_LINE));
        let end = (self.line.end + END_OF_LINE).saturating_add(text);
        (end <= bytes.len()).then_some(end)
    }

    /// How many answers are inside of it.
    fn items(&self) -> usize {
        if self.kind == b'*' { usize::try_from(self.number).unwrap_or(0) } else { 0 }
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Answers, to be read one after the other.
pub struct Answers {
    bytes: Bytes,
    at: usize,
}

impl Answers {
    /// All of them are whole.
    pub fn new(bytes: Bytes) -> Self {
        Answers { bytes, at: 0 }
    }

    fn head(&mut self) -> Result<Head, StoreError> {
        let head = Head::read(&self.bytes, self.at).map_err(|error| unexpected("an answer", &error))?;
        head.ok_or_else(|| unexpected("one more answer", &self.bytes.len()))
    }

    /// The next one's own text, which is a status, a number in digits, or a string. One that says that something
    /// failed is an error.
    fn text(&mut self) -> Result<&[u8], StoreError> {
        let head = self.head()?;
        let Some(end) = head.end_of_text(&self.bytes) else {
            return Err(unexpected("all of an answer", &self.at));
        };
        self.at = end;
        match head.kind {
            b'-' => Err(failed(&self.bytes[head.line])),
            b'$' if head.number >= 0 => {
                Ok(&self.bytes[end - END_OF_LINE - head.number as usize..end - END_OF_LINE])
            }
            b'+' | b':' => Ok(&self.bytes[head.line]),
            _ => Err(unexpected("a text", &String::from_utf8_lossy(&self.bytes[head.line]))),
        }
    }

    /// The next one says that all is well.
    pub fn okay(&mut self) -> Result<(), StoreError> {
        self.text().map(drop)
    }

    /// The next one is an id.
    pub fn id(&mut self) -> Result<StreamId, StoreError> {
        let text = self.text()?;
        let text = std::str::from_utf8(text).map_err(|error| unexpected("an id", &error))?;
        reply::parsed(text)
    }

    /// The next one, whole.
    pub fn value(&mut self) -> Result<Value, StoreError> {
        let begin = self.at;
        self.skip(1)?;
        let value = ::redis::parse_redis_value(&self.bytes[begin..self.at]);
        value.map_err(|error| unexpected("an answer", &error))
    }

    fn skip(&mut self, mut answers: usize) -> Result<(), StoreError> {
        let gone = advance(&self.bytes, &mut self.at, &mut answers);
        gone.map_err(|error| unexpected("an answer", &error))?;
        if answers == 0 { Ok(()) } else { Err(unexpected("one more answer", &self.bytes.len())) }
    }

    /// Goes over so many, then into a list; false if it is none.
    pub fn enter(&mut self, before: usize) -> Result<bool, StoreError> {
        self.skip(before)?;
        let head = self.head()?;
        let is_list = head.kind == b'*' && head.number >= 0;
        if is_list {
            self.at = head.line.end + END_OF_LINE;
        }
        Ok(is_list)
    }
}

fn failed(text: &[u8]) -> StoreError {
    StoreError::Broken(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_written_as_the_library_writes_them() {
        let mut commands = Commands::default();
        let long = "x".repeat(1234);
        commands.begin("SET", 3).arg("key").arg(&long);
        commands.begin("XADD", 6).args(["ten bytes!", "99", ""]).number(u64::MAX).joined(&[b"a", b"", b"bc"]);
        let mut one = ::redis::cmd("SET");
        one.arg("key").arg(&long);
        let mut other = ::redis::cmd("XADD");
        other.arg("ten bytes!").arg("99").arg("").arg(u64::MAX).arg("abc");
        let expected = [one.get_packed_command(), other.get_packed_command()].concat();
        commands.add(&one);
        assert_eq!(commands.count(), 3);
        assert_eq!(commands.into_bytes(), [expected, one.get_packed_command()].concat());
    }

    const ANSWERED: &[u8] =
        b"+OK\r\n+QUEUED\r\n*6\r\n:7\r\n$5\r\n\r\n1-2\r\n$3\r\n5-6\r\n-ERR no\r\n*2\r\n*-1\r\n$0\r\n\r\n$-1\r\n";

    fn length(answers: usize, bytes: &[u8]) -> io::Result<Option<usize>> {
        Incoming::new(answers).length(bytes)
    }

    #[test]
    fn answers_are_whole_with_their_last_byte_however_they_come() {
        let mut slowly = Incoming::new(3);
        for at in 0..ANSWERED.len() {
            assert_eq!(slowly.length(&ANSWERED[..at]).unwrap(), None, "{at} bytes");
            assert_eq!(length(3, &ANSWERED[..at]).unwrap(), None, "{at} bytes at once");
        }
        let more = [ANSWERED, b"+OK\r\n"].concat();
        assert_eq!(slowly.length(&more).unwrap(), Some(ANSWERED.len()));
        assert_eq!(length(3, &more).unwrap(), Some(ANSWERED.len()));
    }

    #[test]
    fn answers_are_read_one_after_the_other() {
        let mut answers = Answers::new(Bytes::from_static(ANSWERED));
        assert_eq!(answers.enter(2), Ok(true));
        assert_eq!(answers.okay(), Ok(()));
        assert_eq!(answers.text(), Ok(&b"\r\n1-2"[..]));
        assert_eq!(answers.id(), Ok(StreamId { milliseconds: 5, counter: 6 }));
        assert_eq!(answers.okay(), Err(StoreError::Broken("ERR no".to_owned())));
        assert_eq!(answers.value(), Ok(Value::Array(vec![Value::Nil, Value::BulkString(Vec::new())])));
        assert!(answers.id().is_err(), "nothing is no id");
        assert!(answers.okay().is_err(), "there is no further one");
    }

    #[test]
    fn a_transaction_that_is_refused_is_no_list() {
        for refused in [&b"+OK\r\n-ERR no\r\n-EXECABORT\r\n"[..], b"+OK\r\n+QUEUED\r\n*-1\r\n"] {
            assert_eq!(length(3, refused).unwrap(), Some(refused.len()));
            assert_eq!(Answers::new(Bytes::from_static(refused)).enter(2), Ok(false));
        }
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        let endless = b"*9223372036854775807\r\n".repeat(3);
        for bytes in [&b"hello\r\n"[..], b"\n", b"+OK\n", b"$x\r\n", b"*\r\n", b"%1\r\n", b":\r\n", &endless]
        {
            assert!(length(1, bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(length(1, b"$9223372036854775807\r\nabc").unwrap(), None);
        assert!(length(1, &vec![b'x'; ANSWERS_BYTES_MAX + 1]).is_err());
    }
}
