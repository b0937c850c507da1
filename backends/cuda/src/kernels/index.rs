#![allow(unused)]
use super::build::Builder;use raddle_base::*;use raddle_hal::*;use raddle_op::*;
pub fn gather(builder: &mut Builder, axis: usize, operands: &[Operand]) { () }
pub fn scatter(builder: &mut Builder, axis: usize, mode: ScatterMode, operands: &[Operand]) { () }
