//! Which member should have which partition: rendezvous hashing, so that a member that
//! comes or goes moves only its own share, and all who see the same members agree.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The member that should have the partition. The order of the names does not matter.
pub fn desired<'a>(partition: u32, members: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    members.max_by_key(|member| (xxh3_64_with_seed(member.as_bytes(), u64::from(partition)), *member))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(members: &[&str]) -> Vec<String> {
        (0..1_000).map(|p| desired(p, members.iter().copied()).unwrap().to_owned()).collect()
    }

    #[test]
    fn whoever_comes_takes_its_share_and_nobody_else_moves() {
        let (three, four) = (spread(&["a", "b", "c"]), spread(&["d", "c", "b", "a"]));
        let moved: Vec<_> = three.iter().zip(&four).filter(|(before, after)| before != after).collect();
        assert!(moved.iter().all(|(_, after)| *after == "d"));
        assert!((200..300).contains(&moved.len()), "about a quarter, not {}", moved.len());
    }

    #[test]
    fn nobody_is_desired_where_nobody_is() {
        assert_eq!(desired(0, std::iter::empty()), None);
    }
}
