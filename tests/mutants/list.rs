//! Mistakes on purpose, to show that they are seen (`make mutants`).
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
    debug_assert!(is_listed(name), "{name} is in no list");
    made.as_deref() == Some(name)
}

fn is_listed(name: &str) -> bool {
    MUTANTS.iter().map(|mutant| mutant.0).chain(OTHERS.iter().map(|other| other.0)).any(|known| known == name)
}

/// What sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// Whole runs in simulated time.
    Simulation,
    /// The rules in Rust against those in Redis.
    Differential,
    /// The store in memory against the one in Redis.
    Conformance,
}

use Machine::{Conformance, Differential, Simulation};

/// Those that no unit test sees, what does see them, and what goes wrong.
pub const MUTANTS: [(&str, Machine, &str); 37] = [
    ("park_unchecked", Simulation, "an event that is parked already is parked again"),
    ("own_turn_given_up", Simulation, "to make room an event's own sequence is given up"),
    ("late_twice", Simulation, "what came late stays missing"),
    ("one_wait_too_few", Simulation, "a gap's last wait is left out"),
    ("epoch_keeps_missing", Simulation, "what the old epoch missed is missing in the new one"),
    ("retired_epoch_reopened", Simulation, "a retired lane takes events of its last epoch"),
    ("trim_one_too_far", Simulation, "the first entry that is not done is trimmed"),
    ("id_follows_wall", Simulation, "ids go back with the clock"),
    ("held_fill_unnoted", Simulation, "what fills a gap of a held entity is not noted"),
    ("fill_not_pointed", Simulation, "the ack of what was missing below the point is not noted"),
    ("ack_before_commit", Simulation, "an ack is confirmed before it is in the store"),
    ("ambiguous_commit_done", Simulation, "a commit whose answer was lost counts as done"),
    ("heads_before_lease", Simulation, "what is held is looked at before the lease is taken"),
    ("points_taken_for_none", Simulation, "points that could not be looked up count as none"),
    ("taking_for_ever", Simulation, "a lease that was not given is waited for, for ever"),
    ("ambiguous_accepted", Simulation, "a batch whose answer was lost counts as taken"),
    ("again_as_known", Simulation, "an event for which a call had no room counts as known"),
    ("old_wait_taken", Simulation, "what came while an earlier term waited is taken for this one's"),
    ("parked_next_unchecked", Differential, "what a lane without room has parked at next is written beside it"),
    ("degraded_overtakes_parked", Differential, "in a degraded partition a new event does not wait for what is parked"),
    ("awaited_retired", Differential, "an idle lane is retired though time has something to do in it"),
    ("woken_misses_nothing", Differential, "a lane that was idle misses nothing when it is woken"),
    ("woken_unmarked", Differential, "a lane that was idle forgets which gaps nobody was told of"),
    ("skip_of_any_gap", Differential, "a person gives up a gap that was seen, and another one is skipped"),
    ("extend_any_gap", Differential, "a producer that lives keeps a gap open that it was not asked about"),
    ("extend_before_terminal", Differential, "a producer that lives keeps a gap open behind which the terminal event waits"),
    ("told_before", Differential, "lanes that were told of an earlier degradation are not told of this one"),
    ("breaker_remembers", Differential, "a partition that a person has restored degrades sooner"),
    ("tombstone_bare", Differential, "what a lane that passes misses is not in its tombstone"),
    ("retired_with_parked", Differential, "a closed lane is retired though something is parked"),
    ("bucket_due_late", Differential, "a ring's oldest are looked at a millisecond too late"),
    ("extend_shortens", Differential, "a producer that lives makes a gap end sooner"),
    ("no_number", Conformance, "a commit that was overtaken by a later one is taken"),
    ("held_one_too_long", Differential, "a degraded partition comes back a millisecond too late"),
    ("ring_turns_late", Differential, "a ring of tombstones turns a millisecond too late"),
    ("shadow_floor_passed", Differential, "in shadow the first event that may come counts as out of order"),
    ("marker_by_itself", Differential, "where an entry is a call, a marker begins one of its own"),
];

/// Those that do not count: a unit test sees them, too, or the simulation has not seen them yet.
pub const OTHERS: [(&str, &str); 45] = [
    ("one_id_fewer", "one id of those lately numbered fewer is remembered"),
    ("one_run_fewer", "one run of missing events fewer is remembered"),
    ("restored_unmarked", "on the way back into order nothing says what is missing"),
    ("restored_never_looked_at", "lanes that wait for their partition to be restored are not due then"),
    ("clock_set_back", "what failed waits until a clock that was set back has caught up"),
    ("unmarked_lost", "a change of hands forgets which gaps nobody was told of"),
    ("epoch_cuts_parked", "an epoch begins though a call had no room for all of the old one"),
    ("breaker_one_too_late", "a partition degrades one skip too late"),
    ("calm_one_too_late", "a partition's breaker is calm a thousandth too late"),
    ("full_one_too_late", "a partition is full one entry too late"),
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
    ("floor_over_entry", "an entry counts as done when its first event is"),
    ("point_over_held", "the point stands above what is held, where both are equally far"),
    ("held_misses_nothing", "an entity of which only held events were seen misses nothing"),
    ("old_gap_forgotten", "a gap of an epoch that is over does not survive a change of hands"),
    ("old_fetch_taken", "what was fetched for an earlier turn is taken for this one"),
    ("held_late_again", "late events that are held are not noted as done"),
    ("old_answer_taken", "an answer is taken for what has its number in another term"),
    ("skip_while_passing", "a person gives up a gap of a lane that passes everything"),
    ("one_announced_more", "one announcement more than may be is taken"),
    ("shadow_gap_late", "in shadow a gap is seen a millisecond too late"),
    ("idle_one_too_long", "an idle lane is retired a millisecond too late"),
    ("remembered_one_too_long", "a missing announced entity is remembered a millisecond too long"),
    ("old_commit_taken", "a commit's answer is taken for what was written in another term"),
    ("old_read_taken", "what was read in an earlier term is taken for this one's"),
    ("old_look_up_taken", "points that were looked up in an earlier term are taken for this one's"),
    ("fetch_of_old_term", "what was fetched in an earlier term is taken for this one's"),
    ("swept_unwritten", "points of retired entities are forgotten before it is written that the group is past them"),
    ("swept_new_life", "points of retired entities are forgotten though they moved since they were found"),
    ("end_seen_too_soon", "a read that brings as much as was asked for counts as the end of the stream"),
    ("end_seen_in_error", "a read whose look-up failed counts as the end of the stream later"),
    ("behind_unnoted", "a worker that has not read everything does not know it"),
    ("returns_unread", "degraded lanes return before anything was read"),
    ("retired_not_begun", "an announced entity that has come and gone is reported as missing"),
    ("done_of_another", "a commit counts as done because another term has made as many"),
];
