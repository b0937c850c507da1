//! All suites on the simulator: the same numbers, whatever the order.
fn main() -> std::process::ExitCode {
    raddle_conformance::main(raddle_conformance::Backend::Sim)
}
