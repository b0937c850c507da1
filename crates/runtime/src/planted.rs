//! Each planted fault makes the test fail that is there for it.

use raddle_sync::faults::{Fault, assert_caught};

#[test]
fn fault_error_to_next_caller() {
    assert_caught(Fault::error_to_next_caller, "tests::errors_go_to_dependents_only");
}
#[test]
fn fault_error_stops_at_op() {
    assert_caught(Fault::error_stops_at_op, "tests::errors_go_to_dependents_only");
}
#[test]
fn fault_no_backpressure() {
    assert_caught(Fault::no_backpressure, "tests::a_full_stream_makes_its_submitter_wait_and_nobody_else");
}
#[test]
fn fault_history_grows() {
    assert_caught(Fault::history_grows, "tests::a_stream_forgets_old_clocks");
}
#[test]
fn fault_slow_holds_all() {
    assert_caught(Fault::slow_holds_all, "tests::a_slow_stream_holds_back_no_frees_of_others");
}
#[test]
fn fault_unbind_keeps_count() {
    assert_caught(Fault::unbind_keeps_count, "tests::threads_share_streams_and_leave_no_trace");
}
#[test]
fn fault_close_unbinds() {
    assert_caught(Fault::close_unbinds, "tests::streams::bindings_survive_the_end_of_their_device");
}
#[test]
fn fault_stray_id_decodes() {
    assert_caught(Fault::stray_id_decodes, "id::tests::stray_numbers_name_nothing");
}
#[test]
fn fault_falling_rank() {
    assert_caught(Fault::falling_rank, "tests::what_is_ordered_already_is_not_waited_for_again");
}
#[test]
fn fault_claims_unsorted() {
    assert_caught(Fault::claims_unsorted, "submit::tests::claims_go_up_and_each_block_is_claimed_once");
}
