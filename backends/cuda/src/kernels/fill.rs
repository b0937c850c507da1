#![allow(unused)]
use super::build::Builder;use raddle_base::*;use raddle_hal::*;use raddle_op::*;
pub fn iota(builder: &mut Builder, out: &View, start: Scalar, step: Scalar) { () }
pub fn triangle(builder: &mut Builder, out: &View, input: &View, upper: bool, diagonal: i64) { () }
