//! Each planted fault makes the test fail that is there for it.

use raddle_sync::faults::{Fault, assert_caught};

#[test]
fn fault_forget_ordered() {
    assert_caught(Fault::forget_ordered, "tests::ordering::memory_crosses_streams_by_ticks");
}
#[test]
fn fault_allocation_without_marks() {
    let test = "tests::memory::resources::whatever_a_resource_does_memory_is_safe";
    assert_caught(Fault::allocation_without_marks, test);
}
#[test]
fn fault_foreign_work_unseen() {
    assert_caught(Fault::foreign_work_unseen, "tests::external::work_of_other_code_is_waited_for");
}
#[test]
fn fault_waits_for_tail() {
    assert_caught(Fault::waits_for_tail, "tests::ordering::a_wait_names_the_op_and_not_the_tail");
}
#[test]
fn fault_strangers_free_nothing() {
    assert_caught(Fault::strangers_free_nothing, "tests::ordering::buffers_may_be_dropped_by_any_thread");
}
#[test]
fn fault_callbacks_without_end() {
    let test = "tests::reached::callbacks_are_bounded_and_closing_waits_for_them";
    assert_caught(Fault::callbacks_without_end, test);
}
#[test]
fn fault_exit_keeps_dedicated() {
    let test = "tests::streams::a_dedicated_stream_comes_back_however_its_thread_ends";
    assert_caught(Fault::exit_keeps_dedicated, test);
}
#[test]
fn fault_growth_without_end() {
    let test = "tests::ordering::memory_that_another_thread_frees_in_flight_is_bounded";
    assert_caught(Fault::growth_without_end, test);
}
#[test]
fn fault_closed_slots_stay() {
    let test = "tests::external::slots_of_wrapped_streams_are_counted_and_used_again";
    assert_caught(Fault::closed_slots_stay, test);
}
#[test]
fn fault_freed_is_live() {
    assert_caught(Fault::freed_is_live, "tests::memory::addresses_find_live_buffers_and_nothing_else");
}
#[test]
fn fault_range_of_the_block() {
    assert_caught(Fault::range_of_the_block, "tests::ordering::ranges_outside_of_buffers_are_refused");
}

#[test]
fn fault_error_to_next_caller() {
    assert_caught(Fault::error_to_next_caller, "tests::ordering::errors_go_to_dependents_only");
}
#[test]
fn fault_error_stops_at_op() {
    assert_caught(Fault::error_stops_at_op, "tests::ordering::errors_go_to_dependents_only");
}
#[test]
fn fault_records_without_end() {
    let test = "tests::errors::records_of_launches_that_may_fail_are_bounded";
    assert_caught(Fault::records_without_end, test);
}
#[test]
fn fault_fences_without_end() {
    let test = "tests::memory::what_is_noted_and_freed_fills_no_stream";
    assert_caught(Fault::fences_without_end, test);
}
#[test]
fn fault_exhausted_is_given() {
    let test = "tests::ordering::a_stream_that_has_used_its_numbers_up_is_given_to_nobody";
    assert_caught(Fault::exhausted_is_given, test);
}
#[test]
fn fault_no_backpressure() {
    assert_caught(
        Fault::no_backpressure,
        "tests::ordering::a_full_stream_makes_its_submitter_wait_and_nobody_else",
    );
}
#[test]
fn fault_history_grows() {
    assert_caught(Fault::history_grows, "tests::ordering::a_stream_forgets_old_clocks");
}
#[test]
fn fault_slow_holds_all() {
    assert_caught(Fault::slow_holds_all, "tests::ordering::a_slow_stream_holds_back_no_frees_of_others");
}
#[test]
fn fault_unbind_keeps_count() {
    assert_caught(Fault::unbind_keeps_count, "tests::ordering::threads_share_streams_and_leave_no_trace");
}
#[test]
fn fault_close_unbinds() {
    assert_caught(Fault::close_unbinds, "tests::streams::bindings_survive_the_end_of_their_device");
}
#[test]
fn fault_stray_id_decodes() {
    assert_caught(Fault::stray_id_decodes, "order::id::tests::stray_numbers_name_nothing");
}
#[test]
fn fault_falling_rank() {
    assert_caught(Fault::falling_rank, "tests::ordering::what_is_ordered_already_is_not_waited_for_again");
}
#[test]
fn fault_claims_unsorted() {
    assert_caught(
        Fault::claims_unsorted,
        "submit::enqueue::tests::claims_go_up_and_each_block_is_claimed_once",
    );
}

#[test]
fn fault_room_seen_once() {
    let test = "tests::corners::a_stream_holds_no_more_than_it_has_room_for";
    assert_caught(Fault::room_seen_once, test);
}
#[test]
fn fault_refused_stays_open() {
    let test = "tests::corners::whoever_asks_of_a_lost_device_hears_that_all_is_over";
    assert_caught(Fault::refused_stays_open, test);
}
#[test]
fn fault_failure_of_the_latest() {
    let test = "tests::corners::a_download_tells_of_the_bytes_that_it_copied";
    assert_caught(Fault::failure_of_the_latest, test);
}
#[test]
fn fault_waker_under_lock() {
    assert_caught(Fault::waker_under_lock, "tests::corners::a_future_drops_wakers_under_no_lock");
}
#[test]
fn fault_callbacks_of_callbacks_unseen() {
    let test = "tests::corners::closing_waits_for_callbacks_of_callbacks";
    assert_caught(Fault::callbacks_of_callbacks_unseen, test);
}
#[test]
fn fault_hook_is_captured() {
    assert_caught(Fault::hook_is_captured, "tests::corners::what_a_hook_does_is_no_part_of_a_capture");
}
#[test]
fn fault_kept_failure() {
    let test = "tests::memory::resources::memory_that_a_resource_kept_has_forgotten_its_failure";
    assert_caught(Fault::kept_failure, test);
}
#[test]
fn fault_region_has_a_value() {
    let test = "tests::corners::what_a_capture_allocates_has_no_value_whatever_was_there";
    assert_caught(Fault::region_has_a_value, test);
}
#[test]
fn fault_ended_capture_goes_on() {
    let test = "tests::corners::a_capture_may_end_where_nothing_is_captured";
    assert_caught(Fault::ended_capture_goes_on, test);
}
#[test]
fn fault_sizes_change_inside() {
    let test = "tests::memory::resources::resources_count_the_same_whatever_a_capture_does";
    assert_caught(Fault::sizes_change_inside, test);
}
