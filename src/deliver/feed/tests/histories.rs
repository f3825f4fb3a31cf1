//! Random histories of one partition: entries of one event or of several, answers, wishes, answers of the store that are lost,
//! crashes, in any order that the driver allows. Each event comes in its turn, and none again whose
//! acknowledgement is in the store.

use super::{
    desk::{Desk, ENTITIES},
    *,
};
use crate::store::Wish;

const WISHES: [Wish; 5] = [Wish::Redrive, Wish::Skip, Wish::Drop, Wish::Pause, Wish::Resume];

fn one_of<T: Copy>(items: &[T], random: &mut Random) -> T {
    items[random.below(items.len() as u64) as usize]
}

fn step(desk: &mut Desk, random: &mut Random) {
    let some = random.below(4) as usize;
    match random.below(100) {
        0..12 => desk.publish(one_of(&ENTITIES, random), Order::Strict),
        12..14 => {
            let together: Vec<&str> = (0..some + 2).map(|_| one_of(&ENTITIES, random)).collect();
            desk.publish_together(&together, Order::Strict);
        }
        14..26 => desk.begin_commit(some),
        26..38 => desk.apply_commit(),
        38..48 => desk.end_commit(),
        48..56 => desk.begin_read(some + 1),
        56..60 => desk.look_up(),
        60..66 => desk.end_read(),
        66..70 => desk.begin_fetch(),
        70..74 => desk.fetch(),
        74..78 => desk.end_fetch(),
        78..84 => desk.answer(some, Answer::Ack),
        84..88 => desk.answer(some, Answer::Nack { reason: "no".to_owned() }),
        88 => desk.answer(some, Answer::Returned),
        89..94 => desk.tick(random.below(60_000)),
        94..99 => desk.wish(one_of(&ENTITIES, random), one_of(&WISHES, random)),
        _ if some == 0 => desk.crash(),
        _ => {}
    }
}

#[test]
fn whatever_happens_each_event_comes_in_its_turn_and_none_is_lost() {
    for seed in 0..400 {
        let (mut desk, mut random) = (Desk::new(12), Random::from_seed(seed));
        (0..400).for_each(|_| step(&mut desk, &mut random));
        desk.finish();
    }
}
