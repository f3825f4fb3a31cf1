//! What names an event: its entity, epoch and sequence.
//!
//! Numbers stop at 2^53 - 1, because the other engine is Lua, whose numbers are
//! doubles: up to there they are exact. The types make a larger one impossible, so
//! nothing below has to think about wrapping.

use std::{borrow::Borrow, fmt, sync::Arc};

/// The largest epoch and the largest sequence: 2^53 - 1.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;

/// The thing whose events must stay in order: 1 to 256 bytes, any characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entity(Arc<str>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntityError {
    Empty,
    TooLong { bytes: usize },
}

impl Entity {
    pub const BYTES_MAX: usize = 256;

    pub fn new(name: &str) -> Result<Self, EntityError> {
        match name.len() {
            0 => Err(EntityError::Empty),
            bytes if bytes > Self::BYTES_MAX => Err(EntityError::TooLong { bytes }),
            _ => Ok(Entity(name.into())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// It hashes and compares as its name does.
impl Borrow<str> for Entity {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EntityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EntityError::Empty => write!(f, "an entity has at least 1 byte, this one is empty"),
            EntityError::TooLong { bytes } => {
                write!(f, "an entity has at most {} bytes, this one has {bytes}", Entity::BYTES_MAX)
            }
        }
    }
}

impl std::error::Error for EntityError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberError(pub u64);

impl fmt::Display for NumberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is above 2^53 - 1 ({NUMBER_MAX}), the largest number allowed", self.0)
    }
}

impl std::error::Error for NumberError {}

/// One run of an entity's numbering. A higher one fences the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(u64);

impl Epoch {
    pub fn new(number: u64) -> Result<Self, NumberError> {
        if number > NUMBER_MAX { Err(NumberError(number)) } else { Ok(Epoch(number)) }
    }

    pub fn get(self) -> u64 {
        self.0
    }
}

/// Position of an event in its epoch, or the position a lane releases next. Only
/// the latter can be 2^53, after the last sequence of all was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sequence(u64);

impl Sequence {
    pub fn new(number: u64) -> Result<Self, NumberError> {
        if number > NUMBER_MAX { Err(NumberError(number)) } else { Ok(Sequence(number)) }
    }

    /// What a lane may have as `next`: one more than an event's sequence can be.
    pub fn new_next(number: u64) -> Result<Self, NumberError> {
        if number > NUMBER_MAX + 1 { Err(NumberError(number)) } else { Ok(Sequence(number)) }
    }

    pub fn get(self) -> u64 {
        self.0
    }

    /// The one after an event's sequence.
    pub fn after(self) -> Sequence {
        assert!(self.0 <= NUMBER_MAX, "no event follows the last sequence");
        Sequence(self.0 + 1)
    }

    /// The one before, if there is one.
    pub fn before(self) -> Option<Sequence> {
        self.0.checked_sub(1).map(Sequence)
    }

    /// How far `self` lies ahead of `other`; 0 if it does not.
    pub fn ahead_of(self, other: Sequence) -> u64 {
        self.0.saturating_sub(other.0)
    }
}

macro_rules! shows_its_content {
    ($($name:ty),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )*};
}

shows_its_content!(Entity, Epoch, Sequence);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_has_1_to_256_bytes() {
        assert_eq!(Entity::new(""), Err(EntityError::Empty));
        assert!(Entity::new(&"x".repeat(256)).is_ok());
        assert_eq!(Entity::new(&"x".repeat(257)), Err(EntityError::TooLong { bytes: 257 }));
        // Bytes count, not characters.
        assert_eq!(Entity::new(&"é".repeat(129)), Err(EntityError::TooLong { bytes: 258 }));
    }

    #[test]
    fn numbers_stop_at_2_to_the_53_minus_1() {
        assert!(Epoch::new(NUMBER_MAX).is_ok() && Sequence::new(NUMBER_MAX).is_ok());
        for number in [NUMBER_MAX + 1, 1 << 63, u64::MAX] {
            assert_eq!(Epoch::new(number), Err(NumberError(number)));
            assert_eq!(Sequence::new(number), Err(NumberError(number)));
        }
    }

    #[test]
    fn the_last_sequence_has_a_next_but_nothing_follows_that() {
        let next = Sequence(NUMBER_MAX).after();
        assert_eq!(next.get(), 1 << 53);
        assert_eq!(Sequence::new_next(1 << 53), Ok(next));
        assert!(Sequence::new_next((1 << 53) + 1).is_err());
        assert!(std::panic::catch_unwind(|| next.after()).is_err());
    }
}
