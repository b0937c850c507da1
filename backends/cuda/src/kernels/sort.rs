#![allow(unused)]
use super::build::Builder;use raddle_base::*;use raddle_hal::*;use raddle_op::*;
pub fn sort(builder: &mut Builder, axis: usize, descending: bool, operands: &[Operand]) { () }
pub fn topk(builder: &mut Builder, axis: usize, k: usize, largest: bool, operands: &[Operand]) { () }
