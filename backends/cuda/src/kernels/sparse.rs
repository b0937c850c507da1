#![allow(unused)]
use super::build::Builder;use raddle_base::*;use raddle_hal::*;use raddle_op::*;
pub fn product(builder: &mut Builder, bias: bool, operands: &[Operand]) { () }
pub fn backward(builder: &mut Builder, operands: &[Operand]) { () }
