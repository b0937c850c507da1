#![allow(unused)]
use super::build::Builder;use raddle_base::*;use raddle_hal::*;use raddle_op::*;
pub fn softmax(builder: &mut Builder, kernel: &Kernel, operands: &[Operand]) { () }
pub fn layer_norm(builder: &mut Builder, kernel: &Kernel, operands: &[Operand]) { () }
pub fn layer_norm_backward(builder: &mut Builder, kernel: &Kernel, operands: &[Operand]) { () }
