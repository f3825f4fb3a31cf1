//! Mistakes on purpose, to show that the simulation sees them (`make mutants`).
//!
//! `scripts/mutants` puts this file into a copy of the source, where `edits.patch` writes
//! `mutant!("name")` to the places at which a mistake could be made: it is made if
//! `SERIATIM_MUTANT` names it. `hunt.rs` makes one after the other. The source itself knows
//! nothing of this.

macro_rules! mutant {
    ($name:literal) => {
        $crate::mutants::is_made($name)
    };
}

/// Is this the mistake that is to be made in this process?
pub fn is_made(name: &str) -> bool {
    static MADE: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let made = MADE.get_or_init(|| std::env::var("SERIATIM_MUTANT").ok());
    debug_assert!(MUTANTS.iter().chain(&OTHERS).any(|(known, _)| *known == name), "{name} is in no list");
    made.as_deref() == Some(name)
}

/// Those that no unit test sees and the simulation does, and what goes wrong.
pub const MUTANTS: [(&str, &str); 22] = [
    ("park_unchecked", "an event that is parked already is parked again"),
    ("own_turn_given_up", "to make room an event's own sequence is given up"),
    ("late_twice", "what came late stays missing"),
    ("one_wait_too_few", "a gap's last wait is left out"),
    ("terminal_gives_up", "a terminal event ends the wait for what is before it at once"),
    ("epoch_keeps_missing", "what the old epoch missed is missing in the new one"),
    ("restored_unmarked", "on the way back into order nothing says what is missing"),
    ("restored_never_looked_at", "lanes that wait for their partition to be restored are not due then"),
    ("retired_epoch_reopened", "a retired lane takes events of its last epoch"),
    ("trim_one_too_far", "the first entry that is not done is trimmed"),
    ("id_follows_wall", "ids go back with the clock"),
    ("clock_set_back", "what failed waits until a clock that was set back has caught up"),
    ("unmarked_lost", "a change of hands forgets which gaps nobody was told of"),
    ("held_fill_unnoted", "what fills a gap of a held entity is not noted"),
    ("fill_not_pointed", "the ack of what was missing below the point is not noted"),
    ("ack_before_commit", "an ack is confirmed before it is in the store"),
    ("ambiguous_commit_done", "a commit whose answer was lost counts as done"),
    ("heads_before_lease", "what is held is looked at before the lease is taken"),
    ("points_taken_for_none", "points that could not be looked up count as none"),
    ("taking_for_ever", "a lease that was not given is waited for, for ever"),
    ("ambiguous_accepted", "a batch whose answer was lost counts as taken"),
    ("again_as_known", "an event for which a call had no room counts as known"),
];

/// Those that do not count: a unit test sees them, too, or the simulation has not seen them yet.
pub const OTHERS: [(&str, &str); 25] = [
    ("passed_still_counted", "what was parked and passes counts as parked"),
    ("no_fence", "a commit of a term that is over is taken"),
    ("term_stands", "a term is not raised when the clock was set back"),
    ("held_not_met", "how far an entity is held is not looked at when it comes into view"),
    ("lineless_too_soon", "points of held entities are forgotten before they are in the store"),
    ("forgotten_while_looked_up", "points are forgotten while older ones are being looked up"),
    ("loose_unread", "what is done above the floor is done again after a change of hands"),
    ("alone_for_ever", "a suspect that fails is waited for, for ever"),
    ("hold_beside_running", "a hold begins while something of its entity runs"),
    ("fetched_before_stored", "held events are fetched before they are in the store"),
    ("floor_one_too_far", "the first entry that is not done counts as done"),
    ("parked_next_unchecked", "what a lane without room has parked at next is written beside it"),
    ("age_never_anew", "the age of what is parked is counted from the first ever parked"),
    ("epoch_cuts_parked", "an epoch begins though a call had no room for all of the old one"),
    ("degraded_overtakes_parked", "in a degraded partition a new event does not wait for what is parked"),
    ("awaited_retired", "an idle lane is retired though time has something to do in it"),
    ("no_number", "a commit that was overtaken by a later one is taken"),
    ("done_of_another", "a commit counts as done because another term has made as many"),
    ("point_over_held", "the point stands above what is held, where both are equally far"),
    ("held_misses_nothing", "an entity of which only held events were seen misses nothing"),
    ("old_gap_forgotten", "a gap of an epoch that is over does not survive a change of hands"),
    ("old_fetch_taken", "what was fetched for an earlier turn is taken for this one"),
    ("held_late_again", "late events that are held are not noted as done"),
    ("old_answer_taken", "an answer is taken for what has its number in another term"),
    ("old_read_taken", "entries that were read in another term are taken"),
];
