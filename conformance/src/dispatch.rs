//! The methods that tensors have for the rows of the op table, called by row: the methods themselves are what users call,
//! so it is they that are tested.

use raddle::{Arg, Pointwise, Result, Scalar, Tensor};

fn tensor<'a>(arg: &Arg<'a>) -> &'a Tensor {
    match arg {
        Arg::Tensor(tensor) => tensor,
        Arg::Scalar(_) => unreachable!("the first operand of a method is a tensor"),
    }
}

macro_rules! methods {
    ($($(#[doc = $doc:literal])* $name:ident($($input:ident),*; $($param:ident),*) { $($rest:tt)* })*) => {
        /// `x.op(..)`
        pub fn fresh(op: Pointwise, args: &[Arg<'_>], params: &[Scalar]) -> Result<Tensor> {
            match op { $(Pointwise::$name => methods!(@fresh $name args params [$($input)*] [$($param)*])),* }
        }

        /// `x.op_(..)`
        pub fn in_place(op: Pointwise, args: &[Arg<'_>], params: &[Scalar]) -> Result<()> {
            match op { $(Pointwise::$name => methods!(@in_place $name args params [$($input)*] [$($param)*])),* }
        }

        /// `x.op_out(.., out)`
        pub fn into(op: Pointwise, args: &[Arg<'_>], params: &[Scalar], out: &Tensor) -> Result<()> {
            match op { $(Pointwise::$name => methods!(@into $name args params out [$($input)*] [$($param)*])),* }
        }
    };
    (@fresh fill $args:ident $params:ident $inputs:tt $names:tt) => { unreachable!("{} has no input", $args.len()) };
    (@fresh copy $args:ident $params:ident $inputs:tt $names:tt) => { tensor(&$args[0]).copy() };
    (@fresh $name:ident $args:ident $params:ident [$first:ident $($input:ident)*] [$($param:ident)*]) => {{
        let ([$first $(, $input)*], [$($param),*]) = (operands($args), operands($params));
        tensor(&$first).$name($($input,)* $($param),*)
    }};
    (@in_place fill $args:ident $params:ident $inputs:tt $names:tt) => { tensor(&$args[0]).fill_($params[0]).map(drop) };
    (@in_place copy $args:ident $params:ident $inputs:tt $names:tt) => { tensor(&$args[0]).copy_($args[0]).map(drop) };
    (@in_place where_ $args:ident $params:ident $inputs:tt $names:tt) => { unreachable!("where has no method in place") };
    (@in_place $name:ident $args:ident $params:ident [$first:ident $($input:ident)*] [$($param:ident)*]) => {{
        let ([$first $(, $input)*], [$($param),*]) = (operands($args), operands($params));
        pastey::paste! { tensor(&$first).[<$name _>]($($input,)* $($param),*).map(drop) }
    }};
    (@into fill $args:ident $params:ident $out:ident $inputs:tt $names:tt) => { $out.fill_($params[0]).map(drop) };
    (@into copy $args:ident $params:ident $out:ident $inputs:tt $names:tt) => { tensor(&$args[0]).copy_out($out) };
    (@into where_ $args:ident $params:ident $out:ident $inputs:tt $names:tt) => {
        tensor(&$args[0]).where_out($args[1], $args[2], $out)
    };
    (@into $name:ident $args:ident $params:ident $out:ident [$first:ident $($input:ident)*] [$($param:ident)*]) => {{
        let ([$first $(, $input)*], [$($param),*]) = (operands($args), operands($params));
        pastey::paste! { tensor(&$first).[<$name _out>]($($input,)* $($param,)* $out) }
    }};
}
raddle_op::for_each_pointwise!(methods);

fn operands<T: Copy, const N: usize>(list: &[T]) -> [T; N] {
    list.try_into().unwrap_or_else(|_| unreachable!("the test gives as many operands as the row has"))
}
