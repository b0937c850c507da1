//! Each planted fault makes the test fail that is there for it.

use raddle_sync::faults::{Fault, assert_caught};

#[test]
fn fault_overlap_allowed() {
    assert_caught(Fault::overlap_allowed, "overlap::inputs_may_be_the_output_but_not_half_of_it");
}
#[test]
fn fault_groups_meet() {
    assert_caught(Fault::groups_meet, "groups::what_a_group_writes_no_other_touches");
    assert_caught(Fault::groups_meet, "groups::one_tensor_is_not_two_outputs");
}
#[test]
fn fault_version_not_bumped() {
    assert_caught(Fault::version_not_bumped, "record::versions_count_writes_and_are_shared_by_views");
}
#[test]
fn fault_range_drawn_twice() {
    assert_caught(Fault::range_drawn_twice, "random::threads_never_draw_the_same_numbers_and_a_seed_is_kept");
}
#[test]
fn fault_number_is_cut() {
    assert_caught(Fault::number_is_cut, "number_rule::one_rule_wherever_a_number_meets_a_dtype");
}
