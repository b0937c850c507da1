//! The race suite on every device; where there is no GPU, its part is ignored. `--device NAME` or RADDLE_DEVICE choose one.
fn main() -> std::process::ExitCode {
    raddle_conformance::races::main()
}
