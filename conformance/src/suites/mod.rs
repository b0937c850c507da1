//! The bodies, by what they are about.

mod attention;
mod create;
mod draws;
mod gradients;
mod graphs;
mod harness;
mod normalize;
mod order;
mod planted;
mod pointwise;
mod product;
mod random;
mod reduce;
pub mod reports;
mod testing;
mod views;

use crate::Case;

/// Every case.
pub fn all() -> Vec<Case> {
    let suites = [
        pointwise::cases(),
        reduce::cases(),
        product::cases(),
        attention::cases(),
        normalize::cases(),
        order::cases(),
        create::cases(),
        views::cases(),
        draws::cases(),
        gradients::cases(),
        graphs::cases(),
        reports::cases(),
        testing::cases(),
        random::cases(),
        planted::cases(),
    ];
    suites.into_iter().flatten().collect()
}
