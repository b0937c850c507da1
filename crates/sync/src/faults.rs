//! Planted faults: places where the code can be told to do it wrong, so that the checks can be seen to catch it.
//!
//! `fault!(NAME)` is constant `false` in what ships. In debug builds, models and builds with `--cfg raddle_faults` it
//! tells whether NAME is planted: by [`plant`] for a test, or by the environment variable `RADDLE_FAULT` for a process.

/// Is this build able to plant faults?
pub const ENABLED: bool = cfg!(any(debug_assertions, loom, raddle_faults));

macro_rules! faults {
    ($($(#[doc = $doc:literal])* $name:ident breaks $property:literal;)*) => {
        /// Every fault that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(non_camel_case_types, reason = "named as in RADDLE_FAULT")]
        pub enum Fault { $($(#[doc = $doc])* $name),* }

        impl Fault {
            /// All of them.
            pub const ALL: &[Fault] = &[$(Fault::$name),*];
            /// The name, as in `RADDLE_FAULT`.
            pub fn name(self) -> &'static str {
                match self { $(Fault::$name => stringify!($name)),* }
            }
            /// The invariant that it breaks, as `docs/verification.md` lists them.
            pub fn breaks(self) -> &'static str {
                match self { $(Fault::$name => $property),* }
            }
        }
    };
}

faults! {
    /// A block that is given out while uses of its former life are in flight has forgotten them.
    forget_marks breaks "T1";
    /// A block that is freed while work that touches it is in flight counts as unused at once.
    free_without_fence breaks "T1";
    /// A block that its own stream may use again at once has forgotten its uses, though another stream may be first.
    forget_ordered breaks "T1";
    /// Memory that a resource has given starts with no marks.
    allocation_without_marks breaks "T1";
    /// A piece that is split off a large block starts with no marks.
    split_forgets_marks breaks "T1";
    /// A buffer keeps one read mark, whatever stream read it.
    one_read_mark breaks "T2";
    /// A write waits for the last write only.
    no_wait_after_read breaks "T2";
    /// A read doesn't wait for the last write.
    no_wait_after_write breaks "T2";
    /// A wait brings what the producer knows now, not what it knew at the awaited tick.
    current_clock breaks "T2";
    /// An op waits for what its operands were marked with before it claimed them.
    looks_before_it_claims breaks "T2";
    /// What others have put on a wrapped stream isn't a part of what is there now.
    foreign_work_unseen breaks "T2";
    /// An upload that is queued reads its source when it runs.
    upload_borrows breaks "T3";
    /// An operand's memory goes back to the device although a launch that names it is in flight.
    release_in_flight breaks "T3";
    /// Whoever waits for a stream waits for all but its last op.
    synchronizes_early breaks "T4";
    /// An event that has not been recorded says that it is complete.
    event_born_complete breaks "T4";
    /// An event records all but the last op of the stream.
    event_early breaks "T4";
    /// An event that is recorded again keeps what it had recorded.
    record_first_only breaks "T4";
    /// An event that is recorded again has recorded nothing for a moment.
    blank_while_recorded breaks "T4";
    /// The place where a device notes a time is used again although a launch that notes one there is in flight.
    stamp_in_flight breaks "T4";
    /// A callback runs before what it waits for is complete.
    callback_early breaks "T4";
    /// In a callback the current stream is whatever its thread is bound to.
    callback_stream breaks "T6";
    /// All callbacks of a list run with the stream of the first one.
    callback_of_another breaks "T6";
    /// Memory of others whose last handle has gone is given back though work that touches it is in flight.
    foreign_without_fence breaks "T3";
    /// Memory of others is adopted as if what its producer has put on a stream were over.
    adopted_without_tick breaks "T2";
    /// Who looks whether a buffer's uses are over looks at its last write before its reads, which a writer may take over meanwhile.
    write_looked_at_first breaks "T2";
    /// Memory that a living buffer has is adopted once more, as another one.
    adopted_twice breaks "T2";
    /// Memory of others that was given back is kept in the allocator's lists.
    foreign_given_out_again breaks "T1";
    /// Memory of others is given back under a lock of the device.
    released_under_lock breaks "T5";
    /// A forked child gives back what its parent has adopted.
    child_releases_foreign breaks "T6";
    /// An op writes memory of others that may only be read.
    read_only_is_written breaks "T10";
    /// Who waits for a buffer waits for its last write only.
    waits_for_writes_only breaks "T2";
    /// A wrapped stream is closed without a tick for what others have put there last.
    unfenced_close breaks "T1";
    /// Handles of a wrapped stream are compared by the slot alone, which may stand for another one by now.
    stale_handle breaks "T10";
    /// A stream that a thread has for itself is given to another one as well.
    shared_dedicated breaks "T5";
    /// A wait names the last op of a stream, not the one that made the value.
    waits_for_tail breaks "T5";
    /// All callbacks of a device run on one thread.
    one_callback_thread breaks "T5";
    /// Who waits for a stream isn't woken when one becomes free.
    lost_slot_wakeup breaks "T5";
    /// A thread that waits for room on a stream keeps the lock that the others need.
    wait_under_lock breaks "T5";
    /// A task that comes when the list of its queue was just found empty runs whatever it waits for.
    head_unseen breaks "T2";
    /// A queue whose wait is over isn't woken.
    lost_wakeup breaks "T5";
    /// An event is labelled with what its queue holds after it was recorded.
    label_after_record breaks "T2";
    /// A kernel that is no longer cached is unloaded although a launch of it is in flight.
    unload_in_flight breaks "T3";
    /// A cache builds under its lock: who wants another value waits for a compiler.
    build_under_lock breaks "T5";
    /// Whoever misses a value builds it, though another thread is about to have it.
    build_twice breaks "T9";
    /// A cache evicts nothing.
    cache_unbounded breaks "T9";
    /// A download counts as complete before its bytes are in the memory of the host.
    download_early breaks "T4";
    /// A kernel writes its strided output to a packed copy and leaves it there.
    no_copy_back breaks "T7";
    /// A graph is replayed into memory whose last outputs somebody still holds.
    reuse_leased breaks "T1";
    /// A graph keeps no handles of its operands: their memory is others' as soon as nobody else has one.
    graph_borrows_operands breaks "T3";
    /// The replay of a graph waits for its own memory only, not for its operands.
    unhoisted_waits breaks "T2";
    /// A magazine gives a block out and keeps it, too.
    block_in_two_hands breaks "T1";
    /// Who visits another thread's magazine doesn't have the cores that run the owner tell what they have stored.
    visits_without_fence breaks "T1";
    /// A thread that goes into its magazine looks for visitors before others can see that it is inside.
    owns_without_fence breaks "T1";
    /// Forks are watched from the first use on, not from the start of the program.
    forks_watched_late breaks "T6";
    /// The child of a fork in a callback, a hook or a resource goes on where its parent was.
    child_goes_on_as_parent breaks "T6";
    /// Who opens a device while another thread opens the first one doesn't see to it that a trace has begun.
    trace_starts_once breaks "T6";
    /// A stream that is held goes on.
    hold_holds_nothing breaks "T2";
    /// Closing a device waits for whoever holds a stream of it.
    close_waits_for_holds breaks "T6";
    /// Who visits many magazines waits for the owner of the first before it goes to the second.
    sweeps_in_order breaks "T5";
    /// A piece that is split off a block is described as shorter than it is.
    split_loses_bytes breaks "T9";
    /// Pieces are merged although uses of the second are in flight, which are forgotten.
    merge_in_flight breaks "T1";
    /// `record_stream` covers what is on the stream when it is called, not when the block is freed.
    fence_at_record breaks "T1";
    /// However much is in flight, memory grows rather than that work waits for some of it.
    growth_without_end breaks "T9";
    /// New memory is asked for while other threads keep large blocks that would do.
    hoarded_large breaks "T9";
    /// Whoever finds no memory doesn't look for what is on its way.
    looks_once breaks "T10";
    /// A free block counts as in use while any stream has work in flight.
    slow_holds_all breaks "T9";
    /// What a thread takes out of all magazines is in none of the lists for a while.
    blocks_on_their_way breaks "T6";
    /// Counts of two threads that are added at once: one is lost.
    lost_count breaks "T9";
    /// Whoever makes a peak start again overwrites what others have just raised it to.
    peak_overwritten breaks "T9";
    /// What a device is asked for counts as reserved before it has given it.
    asked_is_reserved breaks "T9";
    /// What a device is just being asked for is refused to others, also if they could have it once the device has refused.
    asked_is_taken breaks "T10";
    /// A buffer of no bytes takes a block of the device.
    empty_takes_memory breaks "T10";
    /// The limit of a device's memory isn't looked at.
    limit_ignored breaks "T9";
    /// A hook for memory that is short is called while a list of the allocator is locked.
    hook_under_lock breaks "T5";
    /// Whoever needs memory gets some of a private pool that isn't theirs.
    pool_leaks breaks "T9";
    /// A trace shows that an op waited, but not for what.
    flow_without_producer breaks "T10";
    /// A forked child takes the locks of its parent.
    child_takes_locks breaks "T6";
    /// What runs when a thread's own things are gone uses them all the same.
    use_after_exit breaks "T6";
    /// A forked child uses a device that has stayed in its parent.
    child_is_not_refused breaks "T6";
    /// A forked child uses a driver that its parent has initialized.
    child_opens_driver breaks "T6";
    /// A thread of a forked child gives its pinned block back, under a lock of the parent.
    child_gives_blocks_back breaks "T6";
    /// The end of a process waits for its threads to come out of the driver, however long that is.
    end_waits_for_ever breaks "T6";
    /// A thread that lets go of its stream goes on counting as one of its users.
    unbind_keeps_count breaks "T6";
    /// A thread that ends insists that nothing is in flight.
    exit_insists_on_idle breaks "T6";
    /// A thread that ends waits for what is in flight.
    exit_waits_for_work breaks "T6";
    /// A thread that ends drops what it has in flight: nobody is ordered behind it any more.
    exit_drops_work breaks "T6";
    /// A buffer that is dropped by a thread that hasn't used its device isn't given back.
    strangers_free_nothing breaks "T6";
    /// A device is closed before its callbacks have run.
    closes_before_callbacks breaks "T6";
    /// However many callbacks wait on a stream, one more is taken.
    callbacks_without_end breaks "T6";
    /// A thread that ends, or lets go of what it has, keeps the stream that it has for itself.
    exit_keeps_dedicated breaks "T6";
    /// A trace is written only if the main thread ends the process.
    trace_of_main_only breaks "T6";
    /// Closing a device forgets which threads are on its streams.
    close_unbinds breaks "T6";
    /// A thread that ends stays on its stream.
    exit_keeps_stream breaks "T9";
    /// A thread that ends takes its free blocks with it.
    exit_loses_magazine breaks "T9";
    /// A launch that panics keeps its operands claimed.
    panic_keeps_claims breaks "T10";
    /// The newest failure is told to whoever reads next.
    error_to_the_next breaks "T10";
    /// A wait is left out because the awaited op is enqueued, though not complete.
    elide_enqueued breaks "T2";
    /// An op borrows its last operand: it orders itself behind it and leaves no mark.
    borrowed_operand breaks "T3";
    /// A tensor doesn't count that it was written, so that backward computes with what it didn't save.
    version_not_bumped breaks "T3";
    /// A thread notes an op when it has let go of the op's operands, so that the op of another may come between.
    told_after_release breaks "T3";
    /// An op that its thread's witness has refused counts as a write.
    refused_is_written breaks "T3";
    /// An op in place takes another view of its output for a constant.
    own_view_is_constant breaks "T3";
    /// An op on a view that was in no graph when it began doesn't look again.
    views_join_unseen breaks "T3";
    /// A view remembers its place in a graph though its base has got another one.
    view_keeps_its_place breaks "T3";
    /// Backward looks at what was saved only before it reads it.
    checked_before_it_reads breaks "T3";
    /// A number that tells what is complete is overwritten by an older one.
    completed_falls breaks "T4";
    /// Who sees a number that tells what is complete doesn't see what was written before.
    completed_relaxed breaks "T4";
    /// Whoever waits for a stream waits for all others, too.
    waits_for_all breaks "T5";
    /// Marks are stamped with a tick that the device has not been given yet.
    stamp_before_submit breaks "T5";
    /// Operands are claimed in the order in which they were named.
    claims_unsorted breaks "T5";
    /// A lock is taken under one of a higher rank.
    falling_rank breaks "T5";
    /// A device is closed while work is in flight.
    close_in_flight breaks "T6";
    /// A kernel doesn't compute the last element of a block.
    last_element_left breaks "T7";
    /// A product of which nothing counts is asked of a library, which may leave its output as it is.
    nothing_is_multiplied breaks "T7";
    /// A library is given a bias that lies where it can't read it.
    bias_where_it_lies breaks "T7";
    /// Lines of elements that lie apart are taken for such as lie side by side.
    strided_as_packed breaks "T7";
    /// An output may overlap an input half.
    overlap_allowed breaks "T7";
    /// One launch for many tensors takes tensors that meet.
    groups_meet breaks "T7";
    /// The parts of a sum are added in another order if there are more threads.
    order_by_threads breaks "T8";
    /// What is drawn depends on where in its memory a tensor begins.
    draws_by_place breaks "T8";
    /// The simulator looks at its queues in an order that isn't the seed's.
    unseeded_order breaks "T8";
    /// Two draws from a generator get the same range of its counter.
    range_drawn_twice breaks "T8";
    /// Attention looks at padding.
    unmasked_padding breaks "T8";
    /// Texts are sorted by length, and so are their results.
    rows_stay_sorted breaks "T8";
    /// Where both bounds of a clamp are equal nobody has the gradient of what is below.
    equal_bounds_are_nobodys breaks "T8";
    /// A rule that computes a sum again rounds it to the input's 16 bits.
    sum_is_rounded_again breaks "T8";
    /// An optimizer drops the state that a step doesn't use.
    unused_state_goes breaks "T8";
    /// An optimizer takes only as much state as its options use now.
    own_state_is_refused breaks "T8";
    /// A version is published before its copies are made.
    publish_before_copy breaks "T8";
    /// The folder of compiled kernels is tidied when a process first writes, and never again.
    folder_tidied_once breaks "T9";
    /// A tokenizer's table of characters is walked without a look at it.
    table_is_believed breaks "T9";
    /// A long text is cut wherever a word ends, also inside of a special token.
    cuts_inside_of_tokens breaks "T9";
    /// What a kernel takes beside its operands is asked of the device past the allocator.
    scratch_is_not_counted breaks "T9";
    /// What searches a line takes a copy of it, of eight bytes an element.
    searched_lines_are_copied breaks "T9";
    /// A device has as many streams as there can be, whatever its limit says.
    streams_unlimited breaks "T9";
    /// A variable that is no value counts as not set.
    bad_limit_is_none breaks "T9";
    /// The slot of a wrapped stream that was closed isn't used again.
    closed_slots_stay breaks "T9";
    /// Clearing a device's caches clears its counters, too.
    clear_forgets_counts breaks "T9";
    /// A stream takes whatever comes, however much is in flight.
    no_backpressure breaks "T9";
    /// A stream remembers all its clocks.
    history_grows breaks "T9";
    /// A number that a dtype lacks becomes whatever a cast makes of it.
    number_is_cut breaks "T10";
    /// Any number with the right mark is taken for the id of a stream.
    stray_id_decodes breaks "T10";
    /// Who waits for what counts as complete isn't told that the device is lost.
    complete_hides_loss breaks "T10";
    /// An error of the device goes to whoever asks next.
    error_to_next_caller breaks "T10";
    /// What is computed from the result of a failed kernel counts as good.
    error_stops_at_op breaks "T10";
    /// A lock that a panic was under stays poisoned.
    poisoned_stays breaks "T10";
    /// A trace that can't be written takes its process down.
    unwritten_trace_aborts breaks "T10";
    /// What a memory resource refuses comes from the device all the same.
    refusal_passed_over breaks "T10";
    /// A guard that a panic drops leaves its stream current.
    guard_stays_at_panic breaks "T10";
    /// A buffer is noted on a stream of another device.
    foreign_stream_is_taken breaks "T10";
    /// A use at an address where there is nothing counts as noted.
    unknown_is_noted breaks "T10";
    /// Streams of the front half of a pool are given out twice as often.
    streams_from_the_front breaks "T9";
    /// An address finds the buffer that has been there.
    freed_is_live breaks "T10";
    /// A forked child takes what has failed in its parent for good.
    child_forgets_failures breaks "T10";
    /// A forked child reads what was still being written.
    child_reads_unwritten breaks "T10";
    /// The bytes of a buffer are those of its block, which may be longer.
    range_of_the_block breaks "T10";
    /// A node of a graph that writes what a node before it reads isn't ordered behind it.
    graph_forgets_reads breaks "T2";
    /// Now and then a recording of allocations forgets an event.
    lost_trace_event breaks "T10";
    /// A recording of allocations puts one thread's events behind another's, whatever came first.
    unordered_trace breaks "T10";
    /// Nobody is called for a batch that could begin.
    lost_batch_wakeup breaks "T5";
    /// A thread that runs a batch calls nobody for what it leaves behind.
    leaves_unwatched breaks "T5";
    /// A future that is ready doesn't say so to who polled it.
    answer_wakes_nobody breaks "T5";
    /// A request of low priority waits as long as there are others.
    priority_starves breaks "T5";
    /// A handler that panics leaves its callers waiting.
    stuck_on_panic breaks "T10";
    /// A batch's results are given to the callers in another order.
    answer_to_the_wrong_caller breaks "T10";
    /// A request whose time is over is run all the same.
    expired_is_run breaks "T10";
    /// A stopped batcher accepts requests.
    accepted_after_stop breaks "T6";
    /// A forked child takes a batcher's locks, and waits for threads that only its parent has.
    child_waits_for_batch breaks "T6";
    /// A thread of a stopped batcher that sleeps isn't told that nothing is left.
    sleeps_through_stop breaks "T6";
    /// A request that was taken back stays in the queue.
    cancel_keeps_slot breaks "T9";
    /// Whoever notes that a buffer is used on a stream waits for no room there, however many have been noted and freed.
    fences_without_end breaks "T9";
    /// Memory of a pool that ends is on its way for a while, and whoever finds no memory isn't told.
    pool_on_its_way breaks "T10";
    /// Threads are given streams that have used their numbers up.
    exhausted_is_given breaks "T9";
    /// Records of launches that went well stay.
    records_without_end breaks "T9";
    /// Threads that have seen room on a stream at once all use it.
    room_seen_once breaks "T9";
    /// A lost device is asked of numbers that it has refused, for ever.
    refused_stays_open breaks "T10";
    /// A download tells of what the buffer has become since.
    failure_of_the_latest breaks "T10";
    /// A future drops wakers, which are code of others, under its lock.
    waker_under_lock breaks "T5";
    /// A callback that a callback brings on a stream that had none is not waited for.
    callbacks_of_callbacks_unseen breaks "T6";
    /// What a hook for memory that is short computes becomes a part of the capture that was short.
    hook_is_captured breaks "T10";
    /// A hook waits for the instance of a graph that its own thread has.
    hook_waits_for_itself breaks "T5";
    /// Where nothing was captured for a while the capture goes on that has ended meanwhile.
    ended_capture_goes_on breaks "T10";
    /// Memory that a resource keeps carries the failure of what it was.
    kept_failure breaks "T10";
    /// A block of a capture that serves once more counts as what has been written there.
    region_has_a_value breaks "T10";
    /// A resource is told of another size when memory comes back than when it went.
    sizes_change_inside breaks "T9";
    /// However many requests wait, one more is accepted.
    queue_without_end breaks "T9";
    /// Requests of any length share a batch.
    padding_without_end breaks "T9";
    /// A server that is told to stop leaves what it has accepted.
    leaves_at_stop breaks "T6";
    /// A batch never ends.
    batch_never_ends breaks "T6";
    /// A server takes any key for its own.
    any_key_is_right breaks "T10";
    /// A server panics while it handles a request.
    panic_in_handler breaks "T10";
    /// A server panics on the thread that tokenizes long texts.
    panic_in_tokenizer_thread breaks "T10";
    /// A server reads bodies of any size.
    body_without_end breaks "T9";
    /// A server goes on computing for clients that have gone.
    gone_keep_room breaks "T9";
    /// What a client that has gone leaves to be tokenized counts as no request any more.
    left_jobs_hold_nothing breaks "T9";
    /// A client that takes a byte of an answer now and then is waited for.
    any_byte_is_enough breaks "T9";
    /// A server's log holds what its clients send.
    body_in_log breaks "T10";
    /// A run of `embed` that goes on reads its input from the beginning.
    resumes_at_start breaks "T10";
    /// Lines of `embed` that can't be read have no rows, so that those behind them move up.
    bad_lines_have_no_rows breaks "T10";
}

#[cfg(any(debug_assertions, loom, raddle_faults))]
mod planted {
    use super::Fault;
    use std::sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    };

    // std's even in models: which fault is planted is no part of the modelled program.
    static PLANTED: AtomicU32 = AtomicU32::new(0);
    static ENVIRONMENT: OnceLock<Option<Fault>> = OnceLock::new();

    /// Is it planted?
    pub fn is(fault: Fault) -> bool {
        let environment = *ENVIRONMENT.get_or_init(|| {
            let name = std::env::var("RADDLE_FAULT").ok()?;
            let fault = Fault::ALL.iter().copied().find(|fault| fault.name() == name);
            if fault.is_none() {
                eprintln!("RADDLE_FAULT: no fault is called {name:?}");
            }
            fault
        });
        PLANTED.load(Relaxed) == fault as u32 + 1 || environment == Some(fault)
    }

    /// Takes the fault out again when dropped.
    #[derive(Debug)]
    pub struct Planted(());

    /// Plants a fault in this process until the guard is dropped. One at a time; tests that plant run one by one.
    pub fn plant(fault: Fault) -> Planted {
        assert_eq!(PLANTED.swap(fault as u32 + 1, Relaxed), 0, "one fault is planted at a time");
        Planted(())
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.store(0, Relaxed);
        }
    }

    /// How often a test runs with a fault until it fails: threads don't meet in every run where the fault shows.
    const RUN_COUNT_MAX: usize = 8;

    /// Runs a test of this binary, named as `--exact` wants it, in processes of its own with the fault planted. Panics if it passes
    /// `RUN_COUNT_MAX` times, or if there is no such test. For tests that plant.
    #[track_caller]
    pub fn assert_caught(fault: Fault, test: &str) {
        let program = std::env::current_exe().expect("a test is a program");
        for _ in 0..RUN_COUNT_MAX {
            let mut command = std::process::Command::new(&program);
            command.args(["--exact", test, "--test-threads=1"]);
            let output = command.env("RADDLE_FAULT", fault.name()).env("RUST_BACKTRACE", "0").output();
            let output = output.expect("a test can be started");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("running 1 test"), "there is no test {test:?}\n{text}");
            if !output.status.success() {
                return println!(
                    "{}",
                    text.lines().find(|line| line.contains("panicked")).unwrap_or_default()
                );
            }
        }
        panic!("{} was not caught by {test} in {RUN_COUNT_MAX} runs", fault.name());
    }
}
#[cfg(any(debug_assertions, loom, raddle_faults))]
pub use planted::{Planted, assert_caught, is, plant};

/// Is the fault planted? Constant `false` in what ships.
#[macro_export]
macro_rules! fault {
    ($name:ident => $planted:expr) => {
        if $crate::fault!($name) {
            $planted;
        }
    };
    ($name:ident) => {{
        #[cfg(any(debug_assertions, loom, raddle_faults))]
        let planted = $crate::faults::is($crate::faults::Fault::$name);
        #[cfg(not(any(debug_assertions, loom, raddle_faults)))]
        let planted = false;
        planted
    }};
}
