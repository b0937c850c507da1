//! The catalogue: what holds, where in the code, what checks it, and the planted faults that must show.
//!
//! To add a property is to add a row. A check names a test by its crate (and the file under `tests/`), modules and function;
//! one that ends with `*` names all that start so. A fault is caught by every test of its name, `fault_NAME`, in the models
//! and in the tests: a row needs to name the fault only.

use super::programs::Build;
use raddle_sync::faults::Fault;
use std::fmt;

/// One row.
pub struct Property {
    /// The invariant of the design that it is a part of, and its number there.
    pub id: &'static str,
    pub says: &'static str,
    /// The item that makes it true.
    pub anchor: &'static str,
    pub checks: &'static [Check],
    pub faults: &'static [Fault],
}

/// What checks a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    pub kind: Kind,
    pub name: &'static str,
}

/// Kinds of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Loom,
    Programs,
    Sim,
    Model,
    Spec,
    Stress,
    Conformance,
    Test,
    Device,
}

impl Kind {
    pub const ALL: [Kind; 9] = [
        Kind::Loom,
        Kind::Programs,
        Kind::Sim,
        Kind::Model,
        Kind::Spec,
        Kind::Stress,
        Kind::Conformance,
        Kind::Test,
        Kind::Device,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Loom => "loom",
            Kind::Programs => "programs",
            Kind::Sim => "sim",
            Kind::Model => "model",
            Kind::Spec => "spec",
            Kind::Stress => "stress",
            Kind::Conformance => "conformance",
            Kind::Test => "test",
            Kind::Device => "device",
        }
    }

    pub fn explained(self) -> &'static str {
        match self {
            Kind::Loom => {
                "a model of the shipped code under loom, in every order with a bounded number of preemptions"
            }
            Kind::Programs => {
                "random programs of several threads and streams on the simulator, each compared with running it in \
                 sequence; a million in a full run"
            }
            Kind::Sim => "the shipped code on the simulator or the oracle, in many orders",
            Kind::Model => "an explicit model, every state of which is visited",
            Kind::Spec => {
                "a specification in TLA+, every state of which TLC visits, or a faulty variant; skipped where there is no \
                 Java or TLC, and then it says nothing"
            }
            Kind::Stress => "many threads on a device",
            Kind::Conformance => "a body of `conformance`, the same for every backend",
            Kind::Test => "a test of one behaviour",
            Kind::Device => "on a GPU; skipped where there is none, and then it says nothing",
        }
    }

    /// Which build it is in; none of a specification.
    pub fn build(self) -> Option<Build> {
        match self {
            Kind::Spec => None,
            Kind::Loom => Some(Build::Models),
            _ => Some(Build::Tests),
        }
    }

    /// Does it need nothing that a machine may not have?
    pub fn is_always_there(self) -> bool {
        ![Kind::Device, Kind::Spec].contains(&self)
    }
}

impl Check {
    pub const PROGRAMS: Check = Check { kind: Kind::Programs, name: "" };

    pub fn markdown(&self) -> String {
        if self.name.is_empty() {
            return self.kind.name().into();
        }
        format!("{} `{}`", self.kind.name(), self.name)
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            return f.write_str("random programs");
        }
        write!(f, "{} {}", self.kind.name(), self.name)
    }
}

impl Property {
    /// The invariant in short.
    pub fn invariant(&self) -> &'static str {
        match self.id.split('.').next() {
            Some("T1") => "no early reuse",
            Some("T2") => "no race",
            Some("T3") => "operands live",
            Some("T4") => "event truth",
            Some("T5") => "progress",
            Some("T6") => "clean end",
            Some("T7") => "whole writes",
            Some("T8") => "same numbers",
            Some("T9") => "bounded",
            _ => "honest failure",
        }
    }
}

macro_rules! kinds {
    ($($function:ident $kind:ident),*) => { $(
        const fn $function(name: &'static str) -> Check {
            Check { kind: Kind::$kind, name }
        }
    )* };
}
kinds!(loom Loom, sim Sim, model Model, spec Spec, stress Stress, conformance Conformance, test Test, device Device);
const PROGRAMS: Check = Check::PROGRAMS;

/// Id, what it says, where, checks, faults.
macro_rules! rows {
    ($($id:literal $says:literal $anchor:literal [$($check:expr),* $(,)?] [$($fault:ident),* $(,)?])*) => {
        /// All rows, by id.
        pub const PROPERTIES: &[Property] = &[$(Property {
            id: $id,
            says: $says,
            anchor: $anchor,
            checks: &[$($check),*],
            faults: &[$(Fault::$fault),*],
        }),*];
    };
}

rows! {
"T1.1" "A block is given out only behind every use of its former lives: marks stay with the memory."
    "raddle_runtime::order::marks::Marks::uses"
    [loom("raddle_runtime::tests::models::model_free_and_reuse"), loom("raddle_runtime::tests::models::model_magazine"), PROGRAMS,
     sim("raddle_runtime::tests::ordering::memory_crosses_streams_by_ticks"), spec("ticks.reuse"),
     device("raddle_conformance::race_suite::cuda::memory_is_not_reused_while_another_stream_reads")]
    [forget_marks]
"T1.2" "A fence at the free covers the latest work on every stream that was noted, not the first."
    "raddle_runtime::memory::buffer::free"
    [loom("raddle_runtime::tests::models::model_free_and_reuse"), PROGRAMS,
     sim("raddle_runtime::tests::ordering::record_stream_covers_what_comes_until_the_free"),
     sim("raddle_conformance::race_suite::sim::record_*"), spec("ticks.noted"),
     device("raddle_conformance::race_suite::cuda::record_covers_what_comes_later")]
    [free_without_fence, fence_at_record]
"T1.3" "A block is never in two hands, also when a thread's magazine is emptied by another."
    "raddle_sync::biased::Biased::visit"
    [loom("raddle_runtime::tests::models::model_magazine"), loom("raddle_sync::biased::models::model_owner_and_visitor"),
     loom("raddle_sync::biased::models::model_owner_and_two_visitors"),
     loom("raddle_sync::biased::models::model_owner_follows_owner"),
     loom("raddle_sync::biased::models::model_owner_and_sweep"), PROGRAMS,
     stress("raddle_sync::biased::tests::an_owner_and_a_visitor_are_never_inside_together"),
     sim("raddle_conformance::race_suite::sim::allocator_race*")]
    [block_in_two_hands, owns_without_fence, visits_without_fence]
"T1.4" "The memory of a graph's outputs isn't written by a replay while somebody holds them."
    "raddle_runtime::graph::replay::Graph::replay"
    [loom("raddle_runtime::tests::models::model_replays"), sim("raddle_runtime::tests::ordering::replays_have_no_race"),
     sim("raddle_conformance::graphs::the_suite_holds_for_many_seeds")]
    [reuse_leased]
"T1.5" "Memory that is first used on another stream than it was allocated for is ordered behind its former uses."
    "raddle_runtime::memory::buffer::Buffer::give"
    [PROGRAMS, sim("raddle_conformance::race_suite::sim::fresh_memory_is_first_used_on_another_stream"),
     conformance("raddle_conformance::cases::c_12_a_buffer_that_another_stream_still_reads_is_not_given_out"),
     device("raddle_conformance::cuda::cuda::reports::c_12_a_buffer_that_another_stream_still_reads_is_not_given_out"),
     sim("raddle_runtime::tests::ordering::memory_crosses_streams_by_ticks")]
    [forget_ordered]
"T1.6" "A wrapped stream is closed behind what others put there last, and memory that was noted for it is kept as long."
    "raddle_runtime::stream::external::close"
    [sim("raddle_runtime::tests::external::memory_is_kept_from_other_code_that_was_told_of"),
     sim("raddle_runtime::tests::external::wrapped_streams_are_closed_while_others_use_them"),
     device("raddle_cuda::gpu::wrapped_streams_are_ordered_and_closed_in_flight")]
    [unfenced_close]
"T1.7" "Pieces of a slab are merged only when no use of them is in flight."
    "raddle_runtime::memory::large::Large::merge_next"
    [sim("raddle_runtime::tests::memory::pieces_in_flight_are_not_merged")]
    [merge_in_flight]
"T1.8" "Whatever policy stands in front of the allocator, its allocations carry their marks."
    "raddle_runtime::memory::policy::resource::Allocation"
    [sim("raddle_runtime::tests::memory::resources::whatever_a_resource_does_memory_is_safe"),
     sim("raddle_runtime::tests::memory::resources::resources_stack")]
    [allocation_without_marks]
"T1.9" "A piece that is split off a block in flight waits for all that the block has to wait for."
    "raddle_runtime::memory::large::Large::cut"
    [sim("raddle_runtime::tests::memory::pieces_that_are_split_off_keep_their_marks")]
    [split_forgets_marks]
"T1.10" "Memory of others is given back, and never given out: no list of free blocks has it."
    "raddle_runtime::memory::release::free_foreign"
    [sim("raddle_runtime::tests::foreign::memory_of_others_is_not_given_out_again"),
     sim("raddle_runtime::tests::foreign::threads_adopt_at_once")]
    [foreign_given_out_again]

"T2.1" "A read is ordered behind the last write."
    "raddle_runtime::order::marks::Marks::claim_read"
    [loom("raddle_runtime::tests::models::model_readers_and_writer"), PROGRAMS,
     sim("raddle_conformance::race_suite::sim::a_chain_is_handed_over"), spec("ticks.streams"),
     device("raddle_conformance::race_suite::cuda::a_chain_is_handed_over")]
    [no_wait_after_write]
"T2.2" "A write is ordered behind the last write and all reads."
    "raddle_runtime::order::marks::Marks::claim_write"
    [loom("raddle_runtime::tests::models::model_registered_readers"), PROGRAMS,
     sim("raddle_runtime::tests::ordering::random_programs_have_no_race")]
    [no_wait_after_read]
"T2.3" "Every stream that reads has a mark of its own; a reader never replaces another stream's, unless it is ordered behind it."
    "raddle_runtime::order::marks::Claim::stamp"
    [loom("raddle_runtime::tests::models::model_readers_and_writer"),
     loom("raddle_runtime::tests::models::model_registered_by_another"), PROGRAMS,
     sim("raddle_conformance::race_suite::sim::two_readers_then_a_writer")]
    [one_read_mark]
"T2.4" "A wait teaches what the producer knew at the awaited tick, no more."
    "raddle_runtime::order::wait_set::WaitSet::wait"
    [loom("raddle_runtime::tests::models::model_learns_after_the_tick"), PROGRAMS]
    [current_clock]
"T2.5" "A wait is left out only if the tick is of the same stream, in its clock, or complete."
    "raddle_runtime::order::wait_set::WaitSet::is_behind"
    [loom("raddle_runtime::tests::models::model_readers_and_writer"), PROGRAMS,
     sim("raddle_runtime::tests::ordering::what_is_ordered_already_is_not_waited_for_again")]
    [elide_enqueued]
"T2.6" "Two ops with opposite operands get one of the two orders for both buffers."
    "raddle_runtime::order::wait_set::WaitSet"
    [loom("raddle_runtime::tests::models::model_opposite_operands"), loom("raddle_runtime::tests::models::model_one_stream"), PROGRAMS]
    [looks_before_it_claims]
"T2.7" "A replay waits for its operands before its first kernel."
    "raddle_runtime::graph::replay::Graph::replay"
    [loom("raddle_runtime::tests::models::model_replays"), sim("raddle_runtime::tests::ordering::replays_have_no_race"),
     sim("raddle_conformance::graphs::the_suite_holds_for_many_seeds")]
    [unhoisted_waits]
"T2.8" "An event of a device covers what its label says: the label is read before it is recorded."
    "raddle_cuda::events::Events::record"
    [test("raddle_cuda::events::tests::an_event_covers_its_label_and_serves_all_below"),
     device("raddle_conformance::race_suite::cuda::an_event_covers_all_before_it")]
    [label_after_record]
"T2.9" "A device obeys the waits and the order of each queue that it is given."
    "raddle_hal::Device::submit"
    [sim("raddle_sim::tests::with_the_wait_nothing_shows"),
     loom("raddle_cpu::models::model_no_wait_is_left_out"),
     stress("raddle_cpu::tests::stress_of_claims_tasks_waits_and_sleepers"),
     stress("raddle_cpu::tests::random_programs_of_many_threads_keep_the_order_of_their_waits"),
     device("raddle_cuda::gpu::random_programs_keep_the_order_of_their_waits")]
    [head_unseen]
"T2.10" "Nodes of a captured graph that touch the same bytes, one of them writing, are ordered."
    "raddle_hal::graph::Graph"
    [test("raddle_hal::graph::tests::nodes_that_meet_are_ordered"), device("raddle_conformance::cuda::cuda::graphs::*")]
    [graph_forgets_reads]
"T2.11" "What other code has put on a wrapped stream is waited for by whoever waits for the stream."
    "raddle_runtime::stream::handle::Stream::now"
    [sim("raddle_runtime::tests::external::work_of_other_code_is_waited_for"),
     device("raddle_cuda::gpu::wrapped_streams_are_ordered_and_closed_in_flight")]
    [foreign_work_unseen]
"T2.12" "Nothing that is put on a held stream starts before all who hold it have let go."
    "raddle_runtime::stream::testing::hold"
    [test("raddle_runtime::ends::what_is_behind_a_hold_waits"), conformance("raddle_conformance::cpu::cpu::testing::*"),
     conformance("raddle_conformance::sim::sim::testing::*"), device("raddle_conformance::cuda::cuda::testing::*")]
    [hold_holds_nothing]
"T2.13" "Memory of others is used behind what its producer has put on a stream."
    "raddle_runtime::memory::foreign::Foreign::adopt"
    [sim("raddle_runtime::tests::foreign::memory_of_others_is_used_behind_its_producer")]
    [adopted_without_tick]
"T2.14" "Other code that waits for a buffer, on a stream of its own or on the host, is behind all reads and writes of it."
    "raddle_runtime::order::marks::Marks::are_over"
    [loom("raddle_runtime::tests::models::model_looked_at"),
     sim("raddle_runtime::tests::foreign::other_code_has_a_buffer_behind_all_that_touches_it")]
    [waits_for_writes_only, write_looked_at_first]
"T2.15" "Memory that comes back while a buffer has it is that buffer's, behind its producer: two tensors of it are ordered."
    "raddle_runtime::device::memory::Device::find"
    [sim("raddle_runtime::tests::foreign::memory_that_comes_back_is_its_buffers")]
    [adopted_twice]

"T3.1" "An op owns its operands through the marks that it stamps: none is freed before the op is over (safe by construction: all ops submit by this one path)."
    "raddle_runtime::submit::enqueue::Stream::enqueue"
    [loom("raddle_runtime::tests::models::model_operands_are_freed"),
     model("raddle_conformance::lifetime::a_single_operand_that_is_owned_lives"),
     model("raddle_conformance::lifetime::all_operands_of_layer_norm_live"), spec("TL.001"), spec("TL.003"),
     sim("raddle_conformance::lifetime::operands_of_layer_norm_outlive_their_handles")]
    [borrowed_operand]
"T3.2" "In every schedule of the model of lifetimes the shipped code does what the model says: owned operands are never read after their death, and borrowed ones, which are planted, are read so where the model says it, at the earliest in five steps: create; start with counts 2, 2, 1; bias is freed; the lock; a dead tensor is read."
    "raddle_conformance::lifetime::schedules"
    [sim("raddle_conformance::lifetime::a_single_operand_is_as_the_model_says"),
     sim("raddle_conformance::lifetime::several_operands_are_as_the_model_says"),
     model("raddle_conformance::lifetime::a_borrowed_operand_dies_in_five_steps"),
     model("raddle_conformance::lifetime::a_borrowed_single_operand_dies"),
     model("raddle_conformance::lifetime::a_borrowed_operand_of_backward_dies"), spec("TL.002"), spec("TL.004")]
    [borrowed_operand]
"T3.3" "Gradients and saved tensors outlive their handles in backward."
    "raddle_grad::engine"
    [model("raddle_conformance::lifetime::all_operands_of_its_backward_live"),
     sim("raddle_conformance::lifetime::operands_of_backward_outlive_their_handles")]
    [borrowed_operand]
"T3.4" "Backward computes with what was saved, or names what was changed since: every write counts a version."
    "raddle_runtime::memory::block::Block::count_write"
    [test("raddle_tensor::it::record::versions_count_writes_and_are_shared_by_views"),
     test("raddle_grad::it::in_place::a_saved_tensor_that_was_changed_is_named"),
     stress("raddle_conformance::race_suite::cpu::a_saved_tensor_is_overwritten"),
     stress("raddle_conformance::race_suite::sim::a_saved_tensor_is_overwritten")]
    [version_not_bumped, checked_before_it_reads]
"T3.5" "A slab goes back to the device only when nothing in flight names it."
    "raddle_runtime::memory::large::Large::release_unused"
    [PROGRAMS, sim("raddle_sim::tests::a_slab_in_use_is_not_released"), spec("ticks.reuse"),
     sim("raddle_runtime::tests::ordering::random_programs_have_no_race")]
    [release_in_flight]
"T3.6" "A kernel that is evicted is unloaded only when no launch of it is in flight."
    "raddle_sync::cache::Retired::collect"
    [test("raddle_sync::cache::tests::what_was_evicted_lives_until_nothing_uses_it"),
     test("raddle_sync::cache::tests::the_least_recently_used_goes_unless_it_is_held"),
     loom("raddle_sync::cache::models::model_evicted_while_running")]
    [unload_in_flight]
"T3.7" "An upload's source may go as soon as the call returns."
    "raddle_runtime::device::work::Device::upload"
    [conformance("raddle_conformance::cases::g_29_uploads_keep_their_sources"),
     test("raddle_cuda::transfers::tests::uploads_hold_nobody_up_and_free_their_blocks"),
     test("raddle_cpu::tests::an_idle_queue_runs_inline_and_a_busy_one_keeps_the_order")]
    [upload_borrows]

"T3.8" "An op's place in the graph of gradients is found and replaced in the order in which ops run, for all views of a tensor and from all threads."
    "raddle_runtime::submit::witness::tell"
    [loom("raddle_runtime::tests::models::witness::model_two_witnesses"),
     loom("raddle_runtime::tests::models::witness::model_a_witness_refuses"), PROGRAMS,
     test("raddle_grad::it::in_place::an_op_may_read_another_view_of_its_output"),
     sim("raddle_conformance::race_suite::sim::a_view_is_looked_at_while_its_base_changes"),
     stress("raddle_conformance::race_suite::cpu::a_view_is_looked_at_while_its_base_changes"),
     sim("raddle_conformance::race_suite::sim::rows_are_filled_by_4_threads"),
     stress("raddle_conformance::race_suite::cpu::rows_are_filled_by_4_threads"),
     sim("raddle_conformance::race_suite::sim::a_tensor_joins_while_a_part_is_filled"),
     stress("raddle_conformance::race_suite::cpu::a_tensor_joins_while_a_part_is_filled")]
    [told_after_release, refused_is_written, own_view_is_constant, views_join_unseen, view_keeps_its_place]

"T3.9" "What a graph was captured with lives as long as the graph and its replays, whoever drops the handles and when."
    "raddle_runtime::graph::template::Template"
    [sim("raddle_conformance::graphs::operands_outlive_their_handles"),
     conformance("raddle_conformance::cpu::cpu::graphs::operands_outlive_their_handles"),
     conformance("raddle_conformance::sim::sim::graphs::operands_outlive_their_handles"),
     device("raddle_conformance::cuda::cuda::graphs::operands_outlive_their_handles")]
    [graph_borrows_operands]
"T3.10" "Memory of others is given back once, when the last handle has gone and everything that touches it is complete."
    "raddle_runtime::memory::release::release"
    [sim("raddle_runtime::tests::foreign::memory_of_others_is_given_back_when_its_work_is_over"),
     sim("raddle_runtime::tests::foreign::memory_of_others_in_flight_has_no_limit"),
     sim("raddle_runtime::tests::foreign::a_drop_waits_for_nothing"),
     sim("raddle_runtime::tests::foreign::the_end_of_a_thread_gives_memory_back")]
    [foreign_without_fence]

"T4.1" "An event that has recorded nothing is not complete."
    "raddle_runtime::stream::event::Event::query"
    [PROGRAMS, sim("raddle_runtime::tests::ordering::events_tell_the_truth"),
     conformance("raddle_conformance::cases::c_13_events_tell_the_truth")]
    [event_born_complete]
"T4.2" "An event is complete only when all work before its record is, and a new record disturbs no former holder."
    "raddle_runtime::stream::event::Event::record"
    [PROGRAMS, sim("raddle_runtime::tests::ordering::events_tell_the_truth"),
     sim("raddle_conformance::race_suite::sim::an_event_covers_all_before_it")]
    [event_early]
"T4.3" "Who sees a tick complete sees what the device wrote before."
    "raddle_sync::raise"
    [loom("raddle_runtime::tests::models::model_completion_publishes")]
    [completed_relaxed]
"T4.4" "Counters of what is complete never run backwards."
    "raddle_runtime::order::streams::StreamInner::poll"
    [loom("raddle_runtime::tests::models::model_two_threads_poll"), PROGRAMS]
    [completed_falls]
"T4.5" "A download is complete when its bytes are in the memory of the host."
    "raddle_cuda::transfers::Transfers::complete"
    [test("raddle_cuda::transfers::tests::a_download_is_complete_when_its_bytes_are_there"),
     device("raddle_cuda::gpu::bytes_go_there_and_back")]
    [download_early]
"T4.6" "An event may be shared: released by one thread while another queries it."
    "raddle_runtime::stream::event::Event"
    [loom("raddle_runtime::tests::models::model_event_is_shared"),
     sim("raddle_conformance::race_suite::sim::events_are_shared"),
     stress("raddle_conformance::race_suite::cpu::events_are_shared")]
    [blank_while_recorded]
"T4.7" "An event that is recorded again has a new tick."
    "raddle_runtime::stream::event::Event::record"
    [sim("raddle_runtime::tests::streams::*"), sim("raddle_runtime::tests::ordering::events_tell_the_truth")]
    [record_first_only]
"T4.8" "A time that was noted stays what it was: nothing in flight is noted over."
    "raddle_runtime::stream::event"
    [sim("raddle_runtime::tests::reached::a_time_stays_what_it_was"),
     sim("raddle_conformance::race_suite::sim::times_follow_each_other"),
     device("raddle_cuda::gpu::times_are_the_devices")]
    [stamp_in_flight]
"T4.9" "A callback runs when its stream has got there, and not before."
    "raddle_runtime::stream::callback"
    [sim("raddle_runtime::tests::reached::a_callback_runs_when_its_stream_got_there_and_on_it"),
     sim("raddle_conformance::race_suite::sim::callbacks_see_their_stream_and_its_work"),
     device("raddle_conformance::race_suite::cuda::callbacks_see_their_stream_and_its_work")]
    [callback_early]

"T4.10" "Who waits for a stream sees all that was on it when the wait began."
    "raddle_runtime::submit::wait::StreamInner::synchronize"
    [sim("raddle_conformance::race_suite::sim::streams_are_waited_for_while_others_submit"),
     stress("raddle_conformance::race_suite::cpu::streams_are_waited_for_while_others_submit"),
     device("raddle_conformance::race_suite::cuda::streams_are_waited_for_while_others_submit")]
    [synchronizes_early]

"T5.1" "A wait names only what the device has been given, so waits can't circle."
    "raddle_runtime::submit::enqueue::Enqueued"
    [loom("raddle_runtime::tests::models::model_opposite_operands"), PROGRAMS,
     sim("raddle_runtime::tests::ordering::random_programs_have_no_race")]
    [stamp_before_submit]
"T5.2" "Claims are taken in the order of the blocks' ids, each block once."
    "raddle_runtime::submit::enqueue::sorted"
    [test("raddle_runtime::submit::enqueue::tests::claims_go_up_and_each_block_is_claimed_once"),
     loom("raddle_runtime::tests::models::model_opposite_operands"), PROGRAMS]
    [claims_unsorted]
"T5.3" "Locks are taken in growing rank, so threads that wait for locks can't circle."
    "raddle_sync::lock::Mutex::lock"
    [PROGRAMS, test("raddle_sync::lock::tests::falling_ranks_are_caught"),
     stress("raddle_conformance::race_suite::cpu::programs_of_64_threads")]
    [falling_rank]
"T5.4" "No lock is held while a device is waited for."
    "raddle_sync::rank::assert_no_lock_is_held"
    [PROGRAMS, sim("raddle_runtime::tests::ordering::a_full_stream_makes_its_submitter_wait_and_nobody_else")]
    [wait_under_lock]
"T5.5" "No wake-up is lost: of a queue whose wait is over, a task, or a thread that sleeps."
    "raddle_cpu::queue::Queues::complete"
    [loom("raddle_cpu::models::model_no_task_is_left_behind"),
     loom("raddle_cpu::models::model_no_parked_queue_is_left_behind"),
     loom("raddle_cpu::models::model_no_sleeper_is_left_behind"),
     stress("raddle_cpu::tests::stress_of_claims_tasks_waits_and_sleepers")]
    [lost_wakeup]
"T5.6" "A wait names the op that made the value, not whatever its stream holds since."
    "raddle_runtime::order::wait_set::WaitSet::behind"
    [sim("raddle_runtime::tests::ordering::a_wait_names_the_op_and_not_the_tail"),
     stress("raddle_cpu::tests::a_long_queue_lets_others_have_their_turn"),
     device("raddle_cuda::gpu::half_a_queue_is_waited_for_and_not_its_end")]
    [waits_for_tail]
"T5.7" "A kernel is compiled once however many threads want it, and nobody who wants another waits for that."
    "raddle_sync::cache::Cache::get"
    [stress("raddle_sync::cache::tests::one_build_a_key_under_32_threads"),
     test("raddle_sync::cache::tests::a_build_holds_up_its_own_key_only"),
     test("raddle_sync::cache::tests::a_build_that_fails_or_panics_can_be_tried_again"),
     loom("raddle_sync::cache::models::model_two_keys")]
    [build_under_lock]
"T5.8" "No two dedicated threads are on one stream."
    "raddle_runtime::stream::sharing::claim"
    [loom("raddle_runtime::tests::models::dedicated::model_dedicated"),
     sim("raddle_runtime::tests::streams::churn_keeps_dedicated_streams_apart"),
     stress("raddle_conformance::race_suite::cpu::threads_have_streams_for_themselves")]
    [shared_dedicated]
"T5.9" "No wake-up is lost when a dedicated stream is let go or its last user leaves."
    "raddle_runtime::stream::sharing::let_go"
    [loom("raddle_runtime::tests::models::dedicated::model_dedicated"),
     loom("raddle_runtime::tests::models::dedicated::model_dedicated_user_leaves")]
    [lost_slot_wakeup]
"T5.10" "Hooks for memory that is short are called under no lock, and so often at most."
    "raddle_runtime::memory::hooks"
    [sim("raddle_runtime::tests::memory::hooks_free_memory"),
     sim("raddle_runtime::tests::memory::hooks_are_bounded_and_their_panics_poison_nothing")]
    [hook_under_lock]
"T5.11" "One stream is synchronized without waiting for another."
    "raddle_runtime::submit::wait::StreamInner::synchronize"
    [sim("raddle_runtime::tests::external::one_stream_is_synchronized_without_the_others")]
    [waits_for_all]
"T5.12" "A slow stream or callback holds up the callbacks of no other."
    "raddle_runtime::stream::callback"
    [sim("raddle_runtime::tests::reached::callbacks_use_the_runtime_keep_their_order_and_may_panic"),
     sim("raddle_runtime::tests::reached::a_slow_stream_holds_up_its_own_callbacks_only")]
    [one_callback_thread]
"T5.13" "Whenever there is something to run, some thread of a batcher looks at its queue, and every caller is woken."
    "raddle_serve::batcher::Queue::call"
    [loom("raddle_serve::batcher::models::model_watched"), loom("raddle_serve::batcher::models::model_two_callers"),
     test("raddle_serve::batcher::tests::answers_are_futures"),
     stress("raddle_serve::batcher::tests::stress_64_threads_with_cancellations")]
    [lost_batch_wakeup, leaves_unwatched, answer_wakes_nobody]
"T5.14" "Nobody starves in a batcher: who overtakes a request that is due came at most a head start later."
    "raddle_serve::schedule::Scheduler::next"
    [test("raddle_serve::schedule::tests::any_steps_meet_the_oracle")]
    [priority_starves]

"T5.15" "Code of others runs under no lock when a future is polled: wakers may own anything."
    "raddle_runtime::stream::event::EventFuture"
    [sim("raddle_runtime::tests::corners::a_future_drops_wakers_under_no_lock")]
    [waker_under_lock]

"T5.16" "A hook that replays a graph doesn't wait for the instance that its own thread has."
    "raddle_runtime::graph::replay::Graph::replay"
    [test("raddle_runtime::ends::a_hook_may_replay_the_graph_that_is_short")]
    [hook_waits_for_itself]
"T5.17" "A thread that loses its core inside of its magazine holds up who sweeps them, and no other owner."
    "raddle_sync::biased::Biased::visit_all"
    [test("raddle_sync::biased::tests::an_owner_that_is_put_off_holds_up_no_other"),
     loom("raddle_sync::biased::models::model_owner_and_sweep")]
    [sweeps_in_order]
"T5.18" "Memory of others is given back under no lock: its owner may use the device."
    "raddle_runtime::memory::release::Owner::release"
    [sim("raddle_runtime::tests::foreign::owners_may_do_what_they_like")]
    [released_under_lock]

"T6.1" "Closing a device drains it: nothing is in flight, and all memory is given back."
    "raddle_runtime::device::life::Device::close"
    [PROGRAMS, stress("raddle_cpu::tests::a_device_can_be_dropped_with_work_queued")]
    [close_in_flight]
"T6.2" "A forked child goes on with the CPU and gets an error of any other device; the parent goes on."
    "raddle_runtime::submit::child::submit"
    [test("raddle_runtime::ends::d_17_a_forked_child_goes_on_and_the_parent_too"),
     test("raddle_cpu::fork::a_forked_child_goes_on_serially"), stress("raddle_conformance::lives::cpu::children_*"),
     sim("raddle_conformance::lives::sim:1::a_child_is_refused"),
     test("raddle_cuda::process::tests::a_child_of_a_process_with_a_driver_is_refused"),
     device("raddle_conformance::lives::cuda:0::a_child_is_refused")]
    [child_is_not_refused, child_opens_driver]
"T6.3" "Buffers may outlive every handle of their device and be dropped by any thread."
    "raddle_runtime::memory::buffer::Buffer"
    [conformance("raddle_conformance::sim::sim::reports::d_16_buffers_may_outlive_handles_and_die_anywhere"),
     sim("raddle_conformance::race_suite::sim::an_owner_drops_while_another_thread_reads"),
     sim("raddle_runtime::tests::ordering::buffers_may_be_dropped_by_any_thread")]
    [strangers_free_nothing]
"T6.4" "A thread that ends lets go of its stream; bindings add up whatever threads come and go."
    "raddle_runtime::stream::binding::Binding::unbind"
    [loom("raddle_runtime::tests::models::model_binding"),
     sim("raddle_runtime::tests::ordering::threads_share_streams_and_leave_no_trace")]
    [unbind_keeps_count]
"T6.5" "A callback sees its stream as the current one."
    "raddle_runtime::stream::callback"
    [sim("raddle_runtime::tests::reached::a_callback_runs_when_its_stream_got_there_and_on_it"),
     sim("raddle_runtime::tests::external::callbacks_of_a_slot_keep_their_streams")]
    [callback_stream, callback_of_another]
"T6.6" "Closing a device runs its callbacks first; they are bounded."
    "raddle_runtime::stream::callback"
    [sim("raddle_runtime::tests::reached::callbacks_are_bounded_and_closing_waits_for_them"),
     sim("raddle_runtime::tests::reached::a_device_is_closed_behind_its_callbacks")]
    [closes_before_callbacks, callbacks_without_end]
"T6.7" "A forked child takes no lock of its parent, and waits for nothing that only a thread of its parent would have made."
    "raddle_runtime::ground::fork::is_child"
    [test("raddle_runtime::ends::a_child_takes_no_lock_of_its_parent"),
     stress("raddle_conformance::lives::cpu::children_compute"),
     stress("raddle_conformance::lives::cpu::children_train"),
     stress("raddle_conformance::lives::cpu::children_share_a_graph"),
     stress("raddle_conformance::lives::cpu::children_of_first_uses"),
     test("raddle_sync::race_once::tests::nobody_waits_for_who_makes_it")]
    [child_takes_locks]
"T6.8" "Thread-locals, statics and exit handlers may use anything, in any order."
    "raddle_runtime::stream::binding::find"
    [stress("raddle_conformance::lives::cpu::locals_*"), stress("raddle_conformance::lives::cpu::exit_handlers"),
     stress("raddle_conformance::lives::cpu::statics_outlive_all"), sim("raddle_conformance::lives::sim:1::locals_*"),
     device("raddle_conformance::lives::cuda:0::exit_handlers")]
    [use_after_exit]
"T6.9" "A thread or a process ends cleanly with work in flight, and soon: it waits for no stream."
    "raddle_runtime::stream::binding::give_back"
    [sim("raddle_runtime::exits::a_thread_ends_beside_a_stream_that_stands_still"),
     sim("raddle_runtime::exits::a_process_ends_beside_a_stream_that_stands_still"),
     stress("raddle_conformance::lives::cpu::main_returns"),
     stress("raddle_conformance::lives::cpu::another_thread_exits"),
     stress("raddle_conformance::lives::cpu::main_panics"),
     sim("raddle_conformance::lives::sim:1::another_thread_exits"),
     device("raddle_conformance::lives::cuda:0::another_thread_exits")]
    [exit_insists_on_idle, exit_waits_for_work]
"T6.10" "A dedicated stream comes back however its thread ends."
    "raddle_runtime::stream::binding::give_back"
    [sim("raddle_runtime::tests::streams::a_dedicated_stream_comes_back_however_its_thread_ends")]
    [exit_keeps_dedicated]
"T6.11" "A trace is written at the end of the process, whichever thread ends it."
    "raddle_runtime::host::trace::at_exit"
    [test("raddle_conformance::observe::any_program_writes_a_trace_at_its_end")]
    [trace_of_main_only]
"T6.12" "A batcher that is stopped answers what it has accepted, and accepts no more; its threads end."
    "raddle_serve::batcher::Batcher::stop"
    [loom("raddle_serve::batcher::models::model_submit_races_stop"),
     stress("raddle_serve::batcher::tests::submits_race_stops"),
     test("raddle_serve::batcher::tests::stops_leave_nobody_waiting"),
     test("raddle_serve::batcher::tests::a_handler_may_stop_its_batcher")]
    [accepted_after_stop, sleeps_through_stop]
"T6.13" "In a forked child a batcher refuses requests and answers, and waits for nobody."
    "raddle_serve::batcher::Queue::is_forked"
    [test("raddle_serve::batcher::tests::a_forked_child_waits_for_nobody")]
    [child_waits_for_batch]
"T6.14" "A server that is told to stop answers every request that it has accepted, or says how many it gave up."
    "raddle_server::http::listen::serve"
    [stress("raddle_server::it::stopping::all_that_was_accepted_is_answered"),
     test("raddle_server::it::stopping::what_waits_is_answered_and_health_says_no"),
     test("raddle_server::it::stopping::what_takes_too_long_is_counted"),
     test("raddle_cli::serve::answers_and_ends_when_it_is_told_to"),
     test("raddle_cli::serve::a_second_signal_ends_it_at_once"),
     test("raddle_cli::serve::signals_drain")]
    [leaves_at_stop]
"T6.15" "A free block is in a magazine or in a list, to whoever looks through all of them: so a device closes behind its threads."
    "raddle_runtime::memory::store::Memory::to_central"
    [stress("raddle_runtime::tests::memory::whoever_drains_finds_all_free_blocks"),
     stress("raddle_conformance::graphs::the_suite_holds_for_many_seeds")]
    [blocks_on_their_way]
"T6.16" "A thread that is bound to a stream stays so when the device is closed; its guards end as they would, and its next uses, of this device or of another, go on."
    "raddle_runtime::device::life::Device::close"
    [sim("raddle_runtime::tests::streams::bindings_survive_the_end_of_their_device")]
    [close_unbinds]
"T6.17" "A server ends when the time to drain is over, whatever its batches do."
    "raddle_cli::serve::run"
    [test("raddle_cli::serve::what_was_given_up_is_told")]
    [batch_never_ends]
"T6.18" "What a thread has put on its stream is done though the thread ends, and others are ordered behind it."
    "raddle_runtime::stream::binding::give_back"
    [sim("raddle_runtime::exits::work_outlives_its_thread")]
    [exit_drops_work]

"T6.19" "Closing a device waits for the callbacks that callbacks bring."
    "raddle_runtime::device::life::Device::close"
    [sim("raddle_runtime::tests::corners::closing_waits_for_callbacks_of_callbacks")]
    [callbacks_of_callbacks_unseen]
"T6.20" "A thread of a forked child ends without a lock of the driver's books."
    "raddle_cuda::prepared::Here"
    [test("raddle_cuda::prepared::tests::a_child_leaves_blocks_alone"),
     test("raddle_cuda::inside::tests::a_child_leaves_the_counts_alone")]
    [child_gives_blocks_back]
"T6.21" "A process ends with its exit code and its trace though a thread waits in the driver for a kernel that never ends."
    "raddle_cuda::exit::end"
    [test("raddle_cuda::exit::tests::a_process_ends_though_a_thread_stays_in_the_driver"),
     device("raddle_cuda::gpu::a_process_ends_beside_a_kernel_that_does_not")]
    [end_waits_for_ever]
"T6.22" "A fork makes a child also if it was under way when the first device was opened."
    "raddle_sync::locks_at_fork::install"
    [test("raddle_runtime::ends::a_fork_that_is_under_way_makes_a_child_too")]
    [forks_watched_late]
"T6.23" "Code of the user that the library calls may fork, and end the process: a child doesn't go on where its parent was."
    "raddle_runtime::ground::fork::has_forked_in"
    [test("raddle_runtime::ends::a_callback_may_fork"), test("raddle_runtime::ends::a_hook_may_fork"),
     test("raddle_runtime::ends::a_resource_may_fork"), stress("raddle_conformance::lives::cpu::a_callback_exits"),
     stress("raddle_conformance::lives::cpu::a_hook_exits"), stress("raddle_conformance::lives::cpu::a_resource_exits"),
     stress("raddle_conformance::lives::cpu::a_capture_exits"),
     stress("raddle_conformance::lives::cpu::a_thread_of_a_pool_exits")]
    [child_goes_on_as_parent]
"T6.24" "Devices that threads open at once are all traced from their first op on."
    "raddle_runtime::host::trace::start_at_open"
    [test("raddle_runtime::ends::devices_that_are_opened_at_once_are_traced")]
    [trace_starts_once]
"T6.25" "Closing a device lets go of streams that somebody holds, or has held and lost."
    "raddle_runtime::device::life::Device::close"
    [conformance("raddle_conformance::cpu::cpu::testing::holds_end_with_their_device"),
     test("raddle_runtime::ends::closing_lets_go_of_what_is_held")]
    [close_waits_for_holds]
"T6.26" "A forked child gives back what it has adopted itself, and nothing of its parent's; a process that ends gives back nothing."
    "raddle_runtime::memory::release::Owner::release"
    [test("raddle_runtime::ends::a_child_gives_back_its_own"),
     test("raddle_runtime::exits::a_process_ends_beside_a_stream_that_stands_still")]
    [child_releases_foreign]

"T7.1" "A kernel writes every element of its output view."
    "raddle_cpu::kernels::pointwise"
    [PROGRAMS, conformance("raddle_conformance::cpu::cpu::pointwise::*"),
     conformance("raddle_conformance::cases::b_05_many_rows_are_all_written"),
     device("raddle_conformance::cuda::cuda::pointwise::*")]
    [last_element_left]
"T7.2" "What a kernel packs it copies back: strided outputs are written whole, and nothing outside of them."
    "raddle_hal::operand::Operand"
    [PROGRAMS, test("raddle_tensor::it::overlap::strided_outputs_are_written_whole_and_nothing_else"),
     conformance("raddle_conformance::cases::a_01_updates_of_a_transposed_tensor_arrive"),
     conformance("raddle_conformance::cpu::cpu::reports::e_19_views_are_filled_whole_and_their_gaps_stay")]
    [no_copy_back]
"T7.3" "An output that overlaps an input, or itself, is refused unless it is the very same view."
    "raddle_tensor::pointwise::check_overlap"
    [test("raddle_tensor::it::overlap::inputs_may_be_the_output_but_not_half_of_it"),
     test("raddle_tensor::it::overlap::outputs_that_overlap_themselves_are_refused"),
     conformance("raddle_conformance::sim::sim::create::overlap_is_refused")]
    [overlap_allowed]
"T7.4" "Every structured op writes what its definition says, whatever the strides."
    "raddle_op::kernel::Kernel"
    [conformance("raddle_conformance::cpu::cpu::reduce::*"), conformance("raddle_conformance::cpu::cpu::product::*"),
     conformance("raddle_conformance::cpu::cpu::normalize::*"), conformance("raddle_conformance::cpu::cpu::order::*"),
     device("raddle_conformance::cuda::cuda::reduce::*"),
     test("raddle_cpu::kernels::structured_tests::reductions_are_the_definition"),
     test("raddle_cpu::kernels::structured_tests::softmax_and_its_derivative_are_the_definition"),
     conformance("raddle_conformance::cpu::cpu::random::*"), device("raddle_conformance::cuda::cuda::random::*")]
    [strided_as_packed]
"T7.5" "In one launch for many tensors, as of an optimizer's step, nothing meets what is written: it is refused."
    "raddle_tensor::groups::check_apart"
    [test("raddle_tensor::it::groups::what_a_group_writes_no_other_touches"),
     test("raddle_tensor::it::groups::one_tensor_is_not_two_outputs"),
     test("raddle_tensor::it::groups::slices_of_one_tensor_are_told_apart_in_no_quadratic_time")]
    [groups_meet]
"T7.6" "Where nothing is multiplied, or nothing added, the result is written all the same."
    "raddle_tensor::linalg::launch"
    [conformance("raddle_conformance::cpu::cpu::product::factors_of_zero"),
     device("raddle_conformance::cuda::cuda::product::factors_of_zero")]
    [nothing_is_multiplied]
"T7.7" "What a library is given lies where it can read it, wherever a view starts."
    "raddle_cuda::kernels::matmul::row_of"
    [test("raddle_cuda::kernels::tests::a_bias_lies_where_the_library_can_read_it"),
     device("raddle_conformance::cuda::cuda::product::starts")]
    [bias_where_it_lies]

"T8.1" "Results don't depend on thread, stream or load, to the last bit."
    "raddle_cpu::threads::Threads::for_each_part"
    [PROGRAMS, stress("raddle_conformance::race_suite::cpu::forward_of_64_threads_200_times"),
     device("raddle_conformance::race_suite::cuda::forward_of_64_threads_200_times"),
     test("raddle_conformance::observe::results_have_the_same_bits_on_any_number_of_threads")]
    [order_by_threads]
"T8.2" "Draws that share a generator never get the same numbers; equal seeds draw alike."
    "raddle_tensor::generator::Generator::take"
    [test("raddle_tensor::it::random::threads_never_draw_the_same_numbers_and_a_seed_is_kept"),
     test("raddle_tensor::it::random::equal_seeds_draw_alike_and_splits_don_t"),
     conformance("raddle_conformance::cases::e_20_a_shared_generator_repeats_nothing")]
    [range_drawn_twice]
"T8.3" "Random numbers depend neither on the layout nor on the thread."
    "raddle_tensor::generator::Generator"
    [conformance("raddle_conformance::cpu::cpu::draws::same_for_every_layout"),
     conformance("raddle_conformance::cpu::cpu::draws::same_for_every_thread"),
     device("raddle_conformance::cuda::cuda::draws::same_for_every_layout"),
     test("raddle_cpu::kernels::random::tests::values_depend_on_the_position_only")]
    [draws_by_place]
"T8.4" "A published version is whole when it can be seen, and never changes."
    "raddle_tensor::publish::Publisher::publish"
    [stress("raddle_tensor::it::publish::readers_see_whole_versions"),
     test("raddle_tensor::it::publish::a_version_never_changes"),
     sim("raddle_conformance::failures::sim::a_version_that_fails_is_not_published")]
    [publish_before_copy]
"T8.5" "A seed of the simulator replays exactly."
    "raddle_sim::Sim"
    [sim("raddle_conformance::programs::a_seed_replays_exactly"),
     sim("raddle_sim::tests::the_same_seed_and_calls_execute_the_same")]
    [unseeded_order]
"T8.6" "A text's vector has the same bits alone and beside any others, on any thread; padding doesn't count."
    "raddle_nn::text::batch::order"
    [test("raddle_nn::it::text::vectors_dont_depend_on_neighbours"), test("raddle_nn::it::text::padding_doesnt_count"),
     stress("raddle::text::eight_threads_share_a_model")]
    [unmasked_padding, rows_stay_sorted]
"T8.7" "No part of a gradient is lost or counted twice at ties of bounds."
    "raddle_op::pointwise::in_order"
    [conformance("raddle_conformance::cpu::cpu::gradients::bounds"), conformance("raddle_conformance::cpu::cpu::gradients::ties"),
     conformance("raddle_conformance::cpu::cpu::gradients::extremes"),
     device("raddle_conformance::cuda::cuda::gradients::bounds"),
     test("raddle_op::tests::at_ties_no_part_of_a_gradient_is_lost_or_counted_twice")]
    [equal_bounds_are_nobodys]
"T8.8" "A rule that computes an input of 16 bits again has what the op had, which isn't rounded."
    "raddle_tensor::normalize::LayerNorm"
    [conformance("raddle_conformance::cpu::cpu::gradients::sums_that_are_normalized"),
     conformance("raddle_conformance::cpu::cpu::gradients::reductions_of_narrow_floats"),
     conformance("raddle_conformance::cpu::cpu::gradients::attention_of_16_bits"),
     device("raddle_conformance::cuda::cuda::gradients::sums_that_are_normalized")]
    [sum_is_rounded_again]
"T8.9" "An optimizer takes whatever state it has saved, and goes on with its state whatever options change between steps."
    "raddle_optim::groups::load_state"
    [test("raddle_optim::it::options::options_of_sgd_change_as_in_pytorch"),
     test("raddle_optim::it::options::options_of_adam_change_as_in_pytorch"),
     test("raddle_optim::it::options::an_optimizer_loads_what_it_has_saved")]
    [unused_state_goes, own_state_is_refused]

"T9.1" "What a stream has in flight is bounded; who submits more waits, and nobody else."
    "raddle_runtime::submit::wait::StreamInner::wait_for_room"
    [sim("raddle_runtime::tests::ordering::a_full_stream_makes_its_submitter_wait_and_nobody_else"), PROGRAMS,
     sim("raddle_sim::tests::a_full_queue_makes_room")]
    [no_backpressure]
"T9.2" "The clocks that a stream remembers are bounded."
    "raddle_runtime::submit::enqueue::StreamInner::remember"
    [sim("raddle_runtime::tests::ordering::a_stream_forgets_old_clocks")]
    [history_grows]
"T9.3" "Memory doesn't grow with threads or fresh streams, and short-lived threads leave no trace."
    "raddle_runtime::stream::binding::give_back"
    [sim("raddle_runtime::tests::ordering::threads_share_streams_and_leave_no_trace"),
     sim("raddle_runtime::tests::ordering::fresh_streams_leave_no_memory_behind"),
     conformance("raddle_conformance::sim::sim::reports::c_14_fresh_streams_strand_no_memory"),
     device("raddle_conformance::cuda::cuda::reports::c_14_fresh_streams_strand_no_memory")]
    [exit_keeps_stream]
"T9.4" "Splits and merges of large blocks keep every byte."
    "raddle_runtime::memory::large::Large::merge_next"
    [sim("raddle_runtime::tests::ordering::random_programs_have_no_race"),
     conformance("raddle_conformance::sim::sim::reports::c_11_a_fitting_block_in_the_pool_is_found_when_memory_is_short")]
    [split_loses_bytes]
"T9.5" "One slow stream doesn't hold back the frees of others."
    "raddle_runtime::order::marks::Marks::uses"
    [sim("raddle_runtime::tests::ordering::a_slow_stream_holds_back_no_frees_of_others")]
    [slow_holds_all]
"T9.6" "Memory that one thread frees in flight and another allocates is bounded."
    "raddle_runtime::memory::magazine::keep_count_max"
    [sim("raddle_runtime::tests::ordering::memory_that_another_thread_frees_in_flight_is_bounded"),
     sim("raddle_runtime::tests::ordering::small_blocks_come_back_when_memory_is_short")]
    [growth_without_end]
"T9.7" "Caches of kernels, on disk and in memory, are bounded."
    "raddle_cuda::disk::Disk"
    [test("raddle_cuda::disk::tests::the_folder_is_bounded"),
     test("raddle_sync::cache::tests::the_least_recently_used_goes_unless_it_is_held"),
     test("raddle_cuda::staging::tests::the_limit_counts_what_is_in_use_and_frees_what_is_not")]
    [folder_tidied_once, cache_unbounded]
"T9.8" "Short-lived threads leave nothing behind: no stream, no memory, no thread."
    "raddle_runtime::stream::binding::give_back"
    [stress("raddle_conformance::lives::cpu::come_and_go"), sim("raddle_conformance::lives::sim:1::come_and_go"),
     device("raddle_conformance::lives::cuda:0::come_and_go")]
    [exit_keeps_stream, exit_loses_magazine]
"T9.9" "Memory doesn't grow with threads times streams."
    "raddle_runtime::memory::large::Large::take"
    [sim("raddle_runtime::tests::memory::memory_does_not_grow_with_threads_times_streams")]
    [growth_without_end]
"T9.10" "The high watermark is hard, and past the low one caches are given back first."
    "raddle_runtime::memory::store::Memory::slab"
    [sim("raddle_runtime::tests::memory::the_high_watermark_is_hard"),
     sim("raddle_runtime::tests::memory::past_the_low_watermark_caches_are_given_back_first"),
     test("raddle_runtime::tests::memory::watermarks_are_limits_of_a_device")]
    [limit_ignored]
"T9.11" "The memory of a private pool is nobody else's, whoever frees it."
    "raddle_runtime::memory::private::PoolInner"
    [sim("raddle_runtime::tests::memory::pools::pools_are_private"),
     stress("raddle_conformance::memory::pools_of_many_threads")]
    [pool_leaks]
"T9.12" "Counts of memory are whole and never run backwards."
    "raddle_runtime::memory::store::Memory::collect"
    [loom("raddle_runtime::tests::models::model_counts"),
     stress("raddle_runtime::tests::memory::counts_never_run_backwards_while_threads_come_and_go")]
    [lost_count]
"T9.13" "A kernel is compiled once for each key."
    "raddle_sync::cache::Cache::get"
    [loom("raddle_sync::cache::models::model_one_build"),
     stress("raddle_sync::cache::tests::one_build_a_key_under_32_threads")]
    [build_twice]
"T9.14" "A cache keeps to its bounds in values and bytes."
    "raddle_sync::cache::Cache"
    [test("raddle_sync::cache::tests::values_and_bytes_are_bounded")]
    [cache_unbounded]
"T9.15" "Limits hold on open devices, and a bad one is told with its place."
    "raddle_hal::limits"
    [test("raddle_conformance::observe::limits_hold"),
     test("raddle_conformance::observe::a_variable_that_is_no_value_is_an_error_at_open"),
     sim("raddle_runtime::tests::memory::bounds::slabs_are_no_larger_than_asked_for"),
     sim("raddle_runtime::tests::memory::bounds::so_much_is_in_flight_as_asked_for")]
    [bad_limit_is_none, streams_unlimited]
"T9.16" "Slots of wrapped streams are counted and used again."
    "raddle_runtime::stream::external::open"
    [sim("raddle_runtime::tests::external::slots_of_wrapped_streams_are_counted_and_used_again"),
     sim("raddle_runtime::tests::external::fresh_wrapped_streams_strand_no_memory")]
    [closed_slots_stay]
"T9.17" "Counters of streams and caches only grow."
    "raddle_runtime::device::caches::Device::cache_stats"
    [stress("raddle_conformance::observe::counters_of_streams_only_grow"),
     stress("raddle_conformance::observe::caches_are_cleared_under_use_and_counters_go_on")]
    [clear_forgets_counts]
"T9.18" "The queue of a batcher has a limit, and a request that is taken back frees its room."
    "raddle_serve::batcher::Answer"
    [loom("raddle_serve::batcher::models::model_cancel_races_delivery"),
     test("raddle_serve::batcher::tests::f_24_cancelling_frees_the_slot"),
     test("raddle_serve::schedule::tests::any_steps_meet_the_oracle")]
    [cancel_keeps_slot, queue_without_end]
"T9.19" "A batch keeps to its limits of tokens, requests and padding; what fits none is refused at once."
    "raddle_serve::schedule::Scheduler::submit"
    [test("raddle_serve::schedule::tests::any_steps_meet_the_oracle"),
     test("raddle_serve::schedule::tests::f_21_*")]
    [padding_without_end]
"T9.20" "Large blocks that threads keep serve whoever needs some before memory grows."
    "raddle_runtime::memory::allocate::Memory::allocate_large"
    [sim("raddle_runtime::tests::memory::large_blocks_that_threads_keep_serve_all")]
    [hoarded_large]
"T9.21" "Large blocks that another stream has in flight are bounded."
    "raddle_runtime::memory::large::Large::take_of_all"
    [sim("raddle_runtime::tests::memory::large_blocks_in_flight_are_bounded")]
    [growth_without_end]
"T9.22" "What clients of a server hold is bounded: bodies, heads, requests, connections, and time."
    "raddle_server::http::body::read"
    [test("raddle_server::it::limits::*")]
    [body_without_end]
"T9.23" "A client that goes takes its texts with it."
    "raddle_server::http::work::rows"
    [test("raddle_server::it::limits::a_full_queue_is_told_and_who_goes_frees_his_room")]
    [gone_keep_room]
"T9.24" "Records of launches that may fail are as many as there are in flight."
    "raddle_runtime::order::taint::Taints::add"
    [sim("raddle_runtime::tests::errors::records_of_launches_that_may_fail_are_bounded")]
    [records_without_end]
"T9.25" "Buffers that are noted on a busy stream and freed fill no stream."
    "raddle_runtime::submit::enqueue::StreamInner::fence"
    [sim("raddle_runtime::tests::memory::what_is_noted_and_freed_fills_no_stream")]
    [fences_without_end]
"T9.26" "A stream that has used its numbers up says so, and threads are given others while there are some."
    "raddle_runtime::order::streams::StreamInner::is_exhausted"
    [sim("raddle_runtime::tests::ordering::a_stream_that_has_used_its_numbers_up_says_so"),
     sim("raddle_runtime::tests::ordering::a_stream_that_has_used_its_numbers_up_is_given_to_nobody")]
    [exhausted_is_given]
"T9.27" "A tokenizer's file is taken only if it makes tokens of any text in time and memory that follow from its length."
    "raddle_nn::text::charsmap::check"
    [test("raddle_nn::it::untrusted::a_table_of_characters_is_checked_before_it_is_walked"),
     test("raddle_nn::text::charsmap::tests::what_passes_can_be_walked"),
     test("raddle_nn::it::untrusted::a_tokenizer_is_checked_before_it_is_made")]
    [table_is_believed]
"T9.28" "A stream holds no more than it has room for, however many threads have seen room at once."
    "raddle_runtime::submit::wait::StreamInner::wait_for_room"
    [sim("raddle_runtime::tests::corners::a_stream_holds_no_more_than_it_has_room_for")]
    [room_seen_once]

"T9.29" "A memory resource is told of the same size when memory comes back as when it went."
    "raddle_runtime::graph::capture::allocate"
    [sim("raddle_runtime::tests::memory::resources::resources_count_the_same_whatever_a_capture_does")]
    [sizes_change_inside]
"T9.30" "A peak of memory is the most that there has been since it was reset, and what the device has refused is in none."
    "raddle_runtime::memory::peak::PeakGauge::reset_peak"
    [loom("raddle_runtime::tests::models::model_peak_is_reset"),
     test("raddle_runtime::tests::memory::bounds::what_is_refused_is_not_reserved")]
    [peak_overwritten, asked_is_reserved]

"T9.31" "What a client that goes leaves to be tokenized counts as its request until it has ended."
    "raddle_server::http::work::prepare"
    [test("raddle_server::http::work::tests::what_a_client_leaves_behind_keeps_its_room")]
    [left_jobs_hold_nothing]
"T9.32" "A client that takes an answer too slowly is left, and until then its request counts as one."
    "raddle_server::http::io::Paced"
    [test("raddle_server::http::io::tests::who_takes_too_little_is_left"),
     test("raddle_server::it::limits::answers_that_nobody_takes_keep_their_room")]
    [any_byte_is_enough]
"T9.33" "What kernels take beside their operands is memory of the device: it counts, keeps to the limit, and is an error before anything is written where there is none; what searches a line takes none."
    "raddle_runtime::submit::launch::Stream::prepared"
    [sim("raddle_conformance::memory::scratch_is_memory_of_the_device"),
     sim("raddle_conformance::memory::long_lines_keep_to_the_limit"),
     test("raddle_cpu::kernels::structured_tests::scratch_of_very_long_lines_is_bounded_or_asked_for")]
    [scratch_is_not_counted, searched_lines_are_copied]
"T9.40" "Of a long text a part is tokenized, and its tokens are those of the whole."
    "raddle_nn::text::cut::Cuts"
    [test("raddle_nn::it::long::no_special_token_is_cut_in_two"),
     test("raddle_nn::it::long::long_texts_have_the_tokens_of_the_whole"),
     test("raddle_nn::it::long::long_pairs_are_cut_as_the_whole")]
    [cuts_inside_of_tokens]
"T9.41" "Streams of a pool are given out in turn, as often as one another."
    "raddle_runtime::stream::handle::Stream::from_pool"
    [sim("raddle_conformance::race_suite::sim::streams_go_round"),
     stress("raddle_conformance::race_suite::cpu::streams_go_round"),
     device("raddle_conformance::race_suite::cuda::streams_go_round")]
    [streams_from_the_front]

"T10.1" "An error of the device is told to who depends on the tick that failed, and to nobody else."
    "raddle_runtime::order::taint::Taints::failure"
    [sim("raddle_runtime::tests::ordering::errors_go_to_dependents_only"),
     sim("raddle_conformance::race_suite::sim::errors_of_kernels_reach_who_depends_on_them"),
     conformance("raddle_conformance::sim::sim::graphs::a_failure_is_told_to_who_depends_on_the_replay")]
    [error_to_next_caller, error_to_the_next]
"T10.2" "An error goes on with the data, with its origin, until memory is written whole."
    "raddle_runtime::submit::enqueue::StreamInner::note"
    [sim("raddle_runtime::tests::ordering::errors_go_to_dependents_only"),
     device("raddle_conformance::race_suite::cuda::errors_of_kernels_reach_who_depends_on_them")]
    [error_stops_at_op]
"T10.3" "Out of memory comes after everything free was given back, says the numbers, and everything goes on."
    "raddle_runtime::memory::store::Memory"
    [PROGRAMS, sim("raddle_runtime::tests::ordering::scarce_memory_is_waited_for_before_an_error_says_so"),
     sim("raddle_conformance::failures::sim::no_memory_at_each_point_of_a_step"),
     sim("raddle_runtime::tests::memory::pools::memory_of_a_pool_that_ends_is_waited_for"),
     device("raddle_conformance::failures::cuda::more_than_there_is")]
    [looks_once, pool_on_its_way]
"T10.4" "A lost device stays lost, hangs nobody, and is told to who uses it."
    "raddle_hal::DeviceError::Lost"
    [PROGRAMS, sim("raddle_sim::tests::a_lost_device_stays_lost_and_everything_is_complete"),
     sim("raddle_conformance::failures::sim::a_lost_device"),
     device("raddle_conformance::failures::cuda::a_kernel_that_traps")]
    [complete_hides_loss]
"T10.5" "A panic of a thread or a kernel poisons nothing and hangs nobody."
    "raddle_sync::lock::MutexGuard"
    [test("raddle_sync::lock::tests::a_panic_poisons_nothing"),
     test("raddle_cpu::tests::a_panic_loses_the_device_and_hangs_nobody"),
     sim("raddle_runtime::tests::ordering::guards_nest_and_unwind")]
    [poisoned_stays]
"T10.6" "Ids, devices and shapes from outside are checked: an error says where, what, expected and found."
    "raddle_runtime::stream::handle::Stream::from_id"
    [sim("raddle_runtime::tests::ordering::pools_go_round_and_ids_are_checked"),
     test("raddle_tensor::it::errors::errors_say_where_what_expected_found"),
     test("raddle_runtime::order::id::tests::ids_name_what_they_came_from_and_nothing_else"),
     sim("raddle_conformance::race_suite::sim::a_stream_of_another_device_is_refused"),
     sim("raddle_conformance::race_suite::sim::ids_name_streams")]
    [stray_id_decodes, foreign_stream_is_taken]
"T10.7" "A handle of a closed stream is refused by its generation, not told by its pointer."
    "raddle_runtime::order::streams::Stream::check_open"
    [sim("raddle_runtime::tests::external::a_handle_of_a_closed_stream_is_refused")]
    [stale_handle]
"T10.8" "A launch that panics holds nothing."
    "raddle_runtime::submit::enqueue::Refused"
    [test("raddle_runtime::ends::a_panic_holds_nothing"),
     stress("raddle_conformance::race_suite::cpu::panics_poison_nothing"),
     sim("raddle_conformance::race_suite::sim::guards_nest_in_threads")]
    [panic_keeps_claims, guard_stays_at_panic]
"T10.9" "A trace says what was waited for: each arrow has both of its ends."
    "raddle_runtime::host::trace"
    [sim("raddle_runtime::host::trace::tests::the_file_is_well_formed")]
    [flow_without_producer]
"T10.10" "A trace that can't be written changes nothing else."
    "raddle_runtime::host::trace::write"
    [test("raddle_conformance::observe::a_trace_that_cannot_be_written_changes_nothing_else")]
    [unwritten_trace_aborts]
"T10.11" "A recording of allocations holds every event up to one moment, or is an error."
    "raddle_runtime::memory::report::trace"
    [stress("raddle_runtime::memory::report::trace::tests::recordings_may_begin_and_end_at_any_moment")]
    [lost_trace_event]
"T10.12" "In a recording an allocation comes before its uses, and all of them before its free."
    "raddle_runtime::memory::report::trace"
    [stress("raddle_runtime::memory::report::trace::tests::a_recording_of_threads_is_in_an_order_that_makes_sense")]
    [unordered_trace]
"T10.13" "Any allocation of a training step may be refused: it is told, and the step can be made again."
    "raddle_runtime::memory::policy::resource::FailingResource"
    [sim("raddle_conformance::failures::sim::no_memory_at_each_allocation"),
     device("raddle_conformance::failures::cuda::no_memory_at_each_allocation")]
    [refusal_passed_over]
"T10.14" "An address that is null, freed or foreign is no live buffer."
    "raddle_runtime::device::memory::Device::record_stream_raw"
    [sim("raddle_runtime::tests::memory::addresses_find_live_buffers_and_nothing_else"),
     stress("raddle_conformance::race_suite::cpu::record_freed"),
     stress("raddle_conformance::race_suite::cpu::record_nothing")]
    [freed_is_live, unknown_is_noted]
"T10.15" "Any number may be given for the id of a stream."
    "raddle_runtime::order::id::StreamId"
    [sim("raddle_runtime::tests::streams::any_number_may_be_given_for_an_id"),
     test("raddle_runtime::order::id::tests::stray_numbers_name_nothing")]
    [stray_id_decodes]
"T10.16" "A child is told what was being written or had failed when it was forked."
    "raddle_runtime::submit::child::submit"
    [test("raddle_runtime::ends::a_child_is_told_what_is_lost"),
     stress("raddle_conformance::lives::cpu::a_child_is_told_of_failures")]
    [child_reads_unwritten, child_forgets_failures]
"T10.17" "A handler that panics, or gives too few results, costs its own batch, whose callers are told."
    "raddle_serve::batcher::run"
    [loom("raddle_serve::batcher::models::model_handler_panics"),
     test("raddle_serve::batcher::tests::f_24_a_panic_costs_its_own_batch_only"),
     test("raddle_serve::batcher::tests::panics_outside_of_the_handler_end_no_thread"),
     test("raddle_serve::batcher::tests::an_error_of_ours_leaves_nobody_waiting")]
    [stuck_on_panic]
"T10.18" "A caller gets the answer to its own request, whoever else has gone."
    "raddle_serve::promise::Promise"
    [loom("raddle_serve::batcher::models::model_two_callers"),
     stress("raddle_serve::batcher::tests::stress_64_threads_with_cancellations"),
     test("raddle_serve::batcher::tests::f_24_callers_that_have_gone_disturb_nobody")]
    [answer_to_the_wrong_caller]
"T10.19" "A request is in one batch, or taken back, or told that its time is over; never run late."
    "raddle_serve::schedule::Scheduler::next"
    [test("raddle_serve::schedule::tests::any_steps_meet_the_oracle"),
     test("raddle_serve::batcher::tests::requests_expire_whatever_runs")]
    [expired_is_run]
"T10.20" "A server's log tells of requests, and not what is in them."
    "raddle_server::http::guard::guard"
    [test("raddle_cli::serve::logs_hold_nothing_of_what_clients_send")]
    [body_in_log]
"T10.21" "A run of `embed` that was killed goes on to the same bytes, or says why it can't."
    "raddle_cli::embed::journal::Journal::resume"
    [test("raddle_cli::embed::a_killed_run_goes_on_to_the_same_bytes"),
     test("raddle_cli::embed::a_run_goes_on_only_as_it_began")]
    [resumes_at_start]
"T10.22" "Of `embed` a line that can't be read is told with its number, and all others keep their rows."
    "raddle_cli::embed::engine::Engine::run"
    [test("raddle_cli::embed::embed_keeps_the_order_and_loses_no_line"),
     test("raddle_cli::embed::rows_dont_depend_on_threads_batches_or_windows")]
    [bad_lines_have_no_rows]
"T10.23" "Whoever finds no memory waits for what others are giving back, before it is told that there is none."
    "raddle_runtime::memory::transit::Transit::has_ended_since"
    [test("raddle_runtime::tests::memory::memory_that_another_thread_gives_back_is_waited_for")]
    [looks_once]
"T10.24" "Bytes outside of a buffer, or of another device's, are refused."
    "raddle_runtime::device::work::Device::range"
    [test("raddle_runtime::tests::ordering::ranges_outside_of_buffers_are_refused")]
    [range_of_the_block]
"T10.25" "A panic of a server's own costs one request, which is told so."
    "raddle_server::http::guard::guard"
    [test("raddle_server::panics::*")]
    [panic_in_handler, panic_in_tokenizer_thread]
"T10.26" "A server with a key computes and tells nothing without it."
    "raddle_server::http::guard::check_key"
    [test("raddle_server::it::errors::keys_are_asked_for")]
    [any_key_is_right]

"T10.27" "Of a lost device everything is over, also what it has refused: whoever asks or waits isn't left waiting."
    "raddle_runtime::stream::handle::Stream::query"
    [sim("raddle_runtime::tests::corners::whoever_asks_of_a_lost_device_hears_that_all_is_over"),
     test("raddle_cpu::tests::a_panic_loses_the_device_and_hangs_nobody")]
    [refused_stays_open]

"T10.28" "A download tells of the bytes that it has copied, whatever becomes of the buffer meanwhile."
    "raddle_runtime::device::work::Device::download"
    [sim("raddle_runtime::tests::corners::a_download_tells_of_the_bytes_that_it_copied")]
    [failure_of_the_latest]

"T10.29" "What hooks and memory resources do is no part of a capture."
    "raddle_runtime::device::memory::Device::on_out_of_memory"
    [sim("raddle_runtime::tests::corners::what_a_hook_does_is_no_part_of_a_capture")]
    [hook_is_captured]

"T10.30" "Memory that is given out again has forgotten the failure of what it was."
    "raddle_runtime::memory::policy::resource::Allocation"
    [sim("raddle_runtime::tests::memory::resources::memory_that_a_resource_kept_has_forgotten_its_failure")]
    [kept_failure]

"T10.31" "What a capture allocates has no value, whatever its memory stood for before."
    "raddle_runtime::graph::capture::allocate"
    [sim("raddle_runtime::tests::corners::what_a_capture_allocates_has_no_value_whatever_was_there")]
    [region_has_a_value]

"T10.32" "A capture may end anywhere, and is over then."
    "raddle_runtime::ground::capturing::uncaptured"
    [sim("raddle_runtime::tests::corners::a_capture_may_end_where_nothing_is_captured")]
    [ended_capture_goes_on]
"T10.33" "A buffer of no bytes takes nothing of the device, and can be had where it has nothing."
    "raddle_runtime::memory::buffer::Buffer::empty"
    [test("raddle_runtime::tests::memory::bounds::buffers_of_no_bytes_can_always_be_had")]
    [empty_takes_memory]
"T10.34" "What the device is only being asked for by others is no reason to refuse memory."
    "raddle_runtime::memory::store::Memory::slab"
    [test("raddle_runtime::tests::memory::bounds::what_the_device_refuses_others_is_there")]
    [asked_is_taken]
"T10.35" "A number that its dtype lacks is an error wherever a number meets a dtype, and nothing is written."
    "raddle_tensor::number::fit"
    [test("raddle_tensor::it::number_rule::*")]
    [number_is_cut]
"T10.36" "An op that would write memory that may only be read is refused, also in a capture and in the place of a graph's operand."
    "raddle_runtime::memory::foreign::Buffer::check_writable"
    [test("raddle_runtime::tests::foreign::read_only_memory_is_not_written"),
     test("raddle_conformance::memory::tensors_lie_over_memory_of_others")]
    [read_only_is_written]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::HashSet, fs, path::Path};

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

    #[test]
    fn ids_are_in_order_and_faults_belong_to_their_invariant() {
        let number = |id: &str| -> (u32, u32) {
            let (invariant, number) = id[1..].split_once('.').unwrap();
            (invariant.parse().unwrap(), number.parse().unwrap())
        };
        assert!(PROPERTIES.is_sorted_by(|a, b| number(a.id) < number(b.id)));
        let mut shown = HashSet::new();
        for row in PROPERTIES {
            assert!(
                row.checks.iter().any(|check| check.kind.is_always_there()),
                "{}: needs a GPU or Java",
                row.id
            );
            for fault in row.faults {
                assert!(
                    row.id.starts_with(&format!("{}.", fault.breaks())),
                    "{} in {}",
                    fault.name(),
                    row.id
                );
                shown.insert(fault.name());
            }
        }
        let left: Vec<_> =
            Fault::ALL.iter().map(|fault| fault.name()).filter(|name| !shown.contains(name)).collect();
        assert!(left.is_empty(), "no row names {left:?}");
    }

    #[test]
    fn anchors_exist() {
        let lost: Vec<String> = PROPERTIES
            .iter()
            .filter_map(|row| super::super::anchors::find(Path::new(ROOT), row.anchor).err())
            .collect();
        assert!(lost.is_empty(), "{}", lost.join("\n"));
    }

    /// All sources below a folder, each with its module's name on top.
    fn sources(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                sources(&entry, found);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let module = entry.file_stem().unwrap().to_str().unwrap();
                found.push(format!("// mod {module}\n{}", fs::read_to_string(&entry).unwrap()));
            }
        }
    }

    fn all_sources(folders: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        folders.iter().for_each(|folder| sources(&Path::new(ROOT).join(folder), &mut found));
        found
    }

    /// A check that has got another name would fail only when all checks run, half an hour later.
    #[test]
    fn names_of_checks_are_in_the_sources() {
        let sources = all_sources(&["crates", "backends", "conformance", "xtask"]);
        let is_no_letter = |letter: char| !letter.is_alphanumeric() && letter != '_';
        let words: HashSet<&str> = sources.iter().flat_map(|text| text.split(is_no_letter)).collect();
        let is_module = |name: &str| sources.iter().any(|text| text.contains(&format!("mod {name}")));
        let is_lost = |check: &Check| {
            let mut names = check.name.split("::").skip(1).collect::<Vec<_>>();
            let is_there = match names.pop().unwrap_or("*").split_once('*') {
                Some(("", _)) => true,
                Some((start, _)) => words.iter().any(|word| word.starts_with(start)),
                None => words.contains(check.name.rsplit("::").next().unwrap()),
            };
            // Other kinds are trials, which have names of their own.
            !is_there || check.kind == Kind::Test && !names.iter().all(|name| is_module(name))
        };
        let checks = PROPERTIES.iter().flat_map(|row| row.checks);
        let lost: Vec<_> = checks.filter(|check| check.kind != Kind::Spec && is_lost(check)).collect();
        assert!(lost.is_empty(), "{lost:#?}");
    }

    /// A model that no row names would be run by nobody, and its faults would count as caught whatever it does.
    #[test]
    fn every_model_is_in_a_row() {
        let mut models = Vec::new();
        for text in all_sources(&["crates", "backends"]) {
            let tests = text.split("#[test]").skip(1);
            let names = tests.filter_map(|test| test.trim().strip_prefix("fn model_")?.split('(').next());
            models.extend(names.map(|name| format!("::model_{name}")));
        }
        let checks: Vec<_> = PROPERTIES.iter().flat_map(|row| row.checks).collect();
        let is_named = |model: &String| checks.iter().any(|check| check.name.ends_with(model.as_str()));
        let left: Vec<_> = models.iter().filter(|model| !is_named(model)).collect();
        assert!(models.len() > 20 && left.is_empty(), "of {} no row names {left:?}", models.len());
    }

    #[test]
    fn every_variant_of_a_specification_is_in_a_row() {
        let checks: Vec<_> = PROPERTIES.iter().flat_map(|row| row.checks).collect();
        let faults: Vec<_> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        for variant in crate::spec::VARIANTS {
            let is_named = checks.iter().any(|check| check.kind == Kind::Spec && check.name == variant.id);
            assert!(is_named || variant.fault().is_some_and(|fault| faults.contains(&fault)), "{variant:?}");
        }
        for check in checks.iter().filter(|check| check.kind == Kind::Spec) {
            crate::spec::find(check.name);
        }
    }

    #[test]
    fn the_docs_are_current() {
        let file = Path::new(ROOT).join("docs/verification.md");
        let text = fs::read_to_string(file).unwrap_or_default();
        assert!(text == super::super::report::docs(), "make it anew: cargo xtask verify --docs");
    }
}
