//! Options that change from step to step, all of them and both ways, against `torch.optim` (2.15, f64): its `SGD` and `Adam` with
//! `param_groups[0].update(…)` before each step. Every schedule runs also with the state saved and loaded before each step.

use crate::{device, leaf};
use raddle_grad::Autograd;
use raddle_optim::{Adam, AdamOptions, Error, Group, Sgd, SgdOptions, State};
use raddle_sync::faults::{Fault, assert_caught};
use raddle_tensor::{Tensor, capture};

/// Steps of two parameters, and what torch made of them.
struct Case<S: 'static> {
    /// The options, and whether the second parameter has a gradient.
    steps: &'static [S],
    /// The parameters, then the tensors of each.
    results: &'static [&'static [f64]],
}

/// lr, momentum, dampening, weight decay, Nesterov.
type SgdStep = (f64, f64, f64, f64, bool, bool);
/// lr, β₁, β₂, eps, weight decay, decoupled.
type AdamStep = (f64, f64, f64, f64, f64, bool, bool);

#[rustfmt::skip]
const SGD: &[Case<SgdStep>] = &[
    Case {
        steps: &[
            (0.02, 0.9, 0.0, 0.1, false, false),
            (0.1, 0.0, 0.0, 0.1, false, false),
            (0.1, 0.0, 0.0, 0.0, false, false),
            (0.02, 0.0, 0.0, 0.0, false, true),
            (0.1, 0.0, 0.0, 0.0, false, false),
            (0.1, 0.0, 0.25, 0.1, false, false),
            (0.1, 0.0, 0.0, 0.1, true, true),
            (0.1, 0.0, 0.25, 0.0, true, false),
            (0.1, 0.9, 0.0, 0.1, true, true),
            (0.02, 0.0, 0.25, 0.1, false, true),
        ],
        results: &[&[1.0089860392761376, -1.884571081108145, 0.39401271672117605], &[2.9278895675959418, -0.19990065683955163], &[-0.2666973322642094, -0.28117831562323614, 0.6864130049982092], &[0.00660025287651687, -0.18824591691773063]],
    },
    Case {
        steps: &[
            (0.1, 0.9, 0.25, 0.0, false, false),
            (0.02, 0.0, 0.25, 0.0, false, false),
            (0.1, 0.0, 0.0, 0.1, true, false),
            (0.02, 0.5, 0.0, 0.1, false, true),
            (0.1, 0.0, 0.25, 0.1, false, true),
            (0.1, 0.9, 0.25, 0.1, true, true),
            (0.1, 0.9, 0.25, 0.0, false, true),
            (0.02, 0.0, 0.0, 0.1, false, true),
            (0.02, 0.0, 0.0, 0.0, false, true),
            (0.1, 0.0, 0.0, 0.1, true, true),
        ],
        results: &[&[0.833810443306288, -1.9309226054958646, 0.44461090446788165], &[2.789068707749115, -0.18841340284029268], &[0.2543669117394711, -0.33625247372850015, -0.10112267975478542], &[0.6962602430248981, -0.25343530052046925]],
    },
    Case {
        steps: &[
            (0.1, 0.0, 0.25, 0.1, true, false),
            (0.1, 0.5, 0.25, 0.1, false, false),
            (0.02, 0.0, 0.0, 0.1, false, false),
            (0.1, 0.5, 0.25, 0.0, true, true),
            (0.02, 0.0, 0.25, 0.0, false, true),
            (0.02, 0.5, 0.25, 0.1, false, true),
            (0.1, 0.0, 0.25, 0.1, true, true),
            (0.02, 0.9, 0.25, 0.1, false, false),
            (0.02, 0.9, 0.0, 0.1, false, false),
            (0.1, 0.0, 0.0, 0.1, false, true),
        ],
        results: &[&[0.8865260010485086, -1.8905925291548178, 0.5363656862777313], &[2.850465115905507, -0.2226857955271919], &[0.3418225974160999, -0.688585162642265, -0.29423695860538035], &[0.177059349253122, -0.18943921347738943]],
    },
    Case {
        steps: &[
            (0.1, 0.5, 0.0, 0.1, true, false),
            (0.02, 0.0, 0.0, 0.0, false, false),
            (0.1, 0.0, 0.0, 0.0, false, false),
            (0.1, 0.0, 0.0, 0.0, true, true),
            (0.1, 0.0, 0.25, 0.1, true, false),
            (0.1, 0.0, 0.0, 0.1, true, true),
            (0.02, 0.5, 0.0, 0.1, false, false),
            (0.02, 0.0, 0.25, 0.1, false, true),
            (0.02, 0.0, 0.25, 0.1, false, false),
            (0.02, 0.5, 0.0, 0.0, false, false),
        ],
        results: &[&[0.9457897400727018, -1.977226114794529, 0.3950833544208093], &[2.9599013548728133, -0.23032335194191153], &[0.36301906452703936, 0.16421590879952686, 0.2154447571912157], &[]],
    },
    Case {
        steps: &[
            (0.1, 0.0, 0.0, 0.1, false, false),
            (0.02, 0.0, 0.25, 0.0, true, false),
            (0.02, 0.5, 0.25, 0.0, false, false),
            (0.02, 0.5, 0.0, 0.1, false, true),
            (0.02, 0.5, 0.0, 0.1, false, true),
            (0.02, 0.0, 0.25, 0.0, true, false),
            (0.02, 0.0, 0.25, 0.0, false, false),
            (0.1, 0.5, 0.25, 0.0, false, false),
            (0.1, 0.5, 0.25, 0.0, false, true),
            (0.02, 0.5, 0.0, 0.0, false, true),
        ],
        results: &[&[0.9719086492131447, -1.985804674414961, 0.430104930449908], &[2.966789192867413, -0.2504316494039628], &[0.38033511005669507, 0.1834594745714667, -0.020004856074750832], &[0.22765817860758844, -0.16260813944663105]],
    },
];

#[rustfmt::skip]
const ADAM: &[Case<AdamStep>] = &[
    Case {
        steps: &[
            (0.01, 0.5, 0.9, 1e-8, 0.1, true, false),
            (0.05, 0.9, 0.99, 0.01, 0.1, false, false),
            (0.05, 0.9, 0.9, 0.01, 0.1, false, false),
            (0.01, 0.0, 0.99, 0.01, 0.1, false, true),
            (0.05, 0.5, 0.9, 0.01, 0.1, false, true),
            (0.01, 0.5, 0.9, 0.01, 0.0, true, false),
            (0.05, 0.9, 0.99, 0.01, 0.0, false, false),
            (0.05, 0.0, 0.9, 1e-8, 0.1, false, true),
        ],
        results: &[&[0.7489792137441101, -1.9875531736995442, 0.40153310883041604], &[2.809363609737858, -0.34421577032747924], &[0.5027770741450974, -0.06564473366152998, -0.1765833674570592], &[0.03945314441756855, 0.011183289064114681, 0.06344452168687446], &[0.32808325773664765, 0.26837882175241623], &[0.019433969576937167, 0.012739808715411999]],
    },
    Case {
        steps: &[
            (0.05, 0.9, 0.99, 1e-8, 0.1, false, false),
            (0.05, 0.5, 0.99, 0.01, 0.0, true, false),
            (0.05, 0.5, 0.9, 1e-8, 0.1, true, false),
            (0.01, 0.5, 0.99, 1e-8, 0.1, true, false),
            (0.01, 0.0, 0.9, 0.01, 0.0, true, true),
            (0.01, 0.5, 0.99, 0.01, 0.0, false, true),
            (0.01, 0.5, 0.99, 1e-8, 0.1, true, true),
            (0.05, 0.5, 0.99, 0.01, 0.0, false, true),
        ],
        results: &[&[0.9503911152094267, -2.029740134686986, 0.4410792589226426], &[2.9992701615654207, -0.27402590357201373], &[0.12239768642234711, 0.059996597088029915, -0.031934546827161736], &[0.013339952655724482, 0.005471401987438866, 0.0400615716715916], &[0.04687819602792197, 0.13320939994630715], &[0.0014571999984376663, 0.008647340685033119]],
    },
    Case {
        steps: &[
            (0.05, 0.5, 0.9, 1e-8, 0.1, false, false),
            (0.01, 0.9, 0.99, 0.01, 0.0, false, false),
            (0.01, 0.5, 0.99, 1e-8, 0.0, false, false),
            (0.05, 0.9, 0.9, 0.01, 0.0, true, false),
            (0.01, 0.0, 0.9, 1e-8, 0.1, false, false),
            (0.01, 0.0, 0.99, 1e-8, 0.0, true, true),
            (0.05, 0.9, 0.99, 1e-8, 0.0, true, false),
            (0.01, 0.9, 0.9, 0.01, 0.1, false, false),
        ],
        results: &[&[0.8828223784523318, -2.150020421870241, 0.37667126242838334], &[3.0099999996027353, -0.24000000043877665], &[0.2804242558981481, -0.017522650233517605, -0.26173932340841666], &[0.03493035832924543, 0.00609152038479541, 0.05821929119594003], &[-0.2517214587229357, -0.2279063738576464], &[0.0006336369278160269, 0.0005194131524494134]],
    },
    Case {
        steps: &[
            (0.01, 0.0, 0.9, 0.01, 0.0, true, false),
            (0.05, 0.0, 0.9, 0.01, 0.0, false, false),
            (0.05, 0.0, 0.99, 1e-8, 0.1, false, true),
            (0.01, 0.0, 0.99, 1e-8, 0.1, true, false),
            (0.05, 0.5, 0.9, 0.01, 0.1, false, false),
            (0.05, 0.9, 0.99, 1e-8, 0.0, false, false),
            (0.01, 0.5, 0.9, 1e-8, 0.1, true, true),
            (0.01, 0.9, 0.99, 1e-8, 0.0, false, false),
        ],
        results: &[&[0.9316312361270531, -1.8961851509165402, 0.5180386099299884], &[2.9341860565680746, -0.17105336475183291], &[-0.10596689758182581, -0.07015037996970255, 0.08982114572098461], &[0.020054403364629856, 0.015394954411792472, 0.06416352901237886], &[0.17853155068033202, -0.19044403999044107], &[0.006505975353524944, 0.0014824896156625611]],
    },
];

fn parameters() -> [Tensor; 2] {
    [leaf(&[1.0, -2.0, 0.5]), leaf(&[3.0, -0.25])]
}

fn give([p, q]: &[Tensor; 2], step: usize, second: bool) {
    let (t, of) =
        (step as f64, |values: &[f64]| Tensor::from_slice(values, [values.len()], device()).unwrap());
    let first: Vec<f64> = (0..3).map(|i| (f64::from(i) * 7.0 + t * 3.0).sin() * 0.5).collect();
    p.set_grad(Some(of(&first))).unwrap();
    let other: Vec<f64> = (0..2).map(|i| (f64::from(i) * 5.0 + t * 2.0).cos() * 0.3).collect();
    q.set_grad(second.then(|| of(&other))).unwrap();
}

fn assert_results(parameters: &[Tensor; 2], state: &State, expected: &[&[f64]], context: &str) {
    let value = |tensor: &Tensor| tensor.detach().to_vec::<f64>().unwrap();
    let count = (expected.len() - 2) / 2;
    let mut found: Vec<Vec<f64>> = parameters.iter().map(value).collect();
    for state in &state.groups[0] {
        let kept = state.tensors.iter().map(value).chain(std::iter::repeat(vec![]));
        found.extend(kept.take(count));
    }
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.len(), expected.len(), "{context}");
        for (found, expected) in found.iter().zip(*expected) {
            assert!((found - expected).abs() < 1e-13, "{context}: {found} is not {expected}");
        }
    }
}

fn sgd_options(&(lr, momentum, dampening, weight_decay, nesterov, _): &SgdStep) -> SgdOptions {
    SgdOptions { lr, momentum, dampening, weight_decay, nesterov }
}

fn adam_options(
    &(lr, beta1, beta2, eps, weight_decay, decoupled, _): &AdamStep,
    capturable: bool,
) -> AdamOptions {
    AdamOptions { lr, beta1, beta2, eps, weight_decay, decoupled, capturable }
}

#[test]
fn options_of_sgd_change_as_in_pytorch() {
    for (index, case) in SGD.iter().enumerate() {
        for reloads in [false, true] {
            let parameters = parameters();
            let make = |options| Sgd::new(parameters.to_vec(), options).unwrap();
            let mut sgd = make(SgdOptions::default());
            for (t, step) in case.steps.iter().enumerate() {
                if reloads {
                    let state = sgd.state().unwrap();
                    sgd.load_state(&state).unwrap();
                    // Into one with other options, too.
                    let momentum = if t % 2 == 0 { 0.0 } else { 0.7 };
                    sgd = make(SgdOptions { momentum, ..SgdOptions::default() });
                    sgd.load_state(&state).unwrap();
                }
                sgd.groups()[0].options = sgd_options(step);
                give(&parameters, t, step.5);
                sgd.step().unwrap();
            }
            assert_results(&parameters, &sgd.state().unwrap(), case.results, &format!("{index} {reloads}"));
        }
    }
}

#[test]
fn options_of_adam_change_as_in_pytorch() {
    // Who counts the steps, device or host, may change at each of them.
    let counted_there: [fn(usize) -> bool; 3] = [|_| false, |_| true, |t| t % 3 == 1];
    for (index, case) in ADAM.iter().enumerate() {
        for reloads in [false, true] {
            for counted in counted_there {
                let parameters = parameters();
                let make = |options| Adam::new(parameters.to_vec(), options).unwrap();
                let mut adam = make(AdamOptions::default());
                for (t, step) in case.steps.iter().enumerate() {
                    if reloads {
                        let state = adam.state().unwrap();
                        adam.load_state(&state).unwrap();
                        if t % 2 == 0 {
                            adam = make(AdamOptions::adamw());
                            adam.load_state(&state).unwrap();
                        }
                    }
                    adam.groups()[0].options = adam_options(step, counted(t));
                    give(&parameters, t, step.6);
                    adam.step().unwrap();
                }
                let state = adam.state().unwrap();
                assert_eq!(state.groups[0][0].step, case.steps.len() as u64);
                assert_results(&parameters, &state, case.results, &format!("{index} {reloads}"));
            }
        }
    }
}

/// A parameter that was never stepped has no state, beside ones that have.
#[test]
fn an_optimizer_loads_what_it_has_saved() {
    for momentum in [0.0, 0.9] {
        let parameters = parameters();
        let options = SgdOptions { momentum, ..SgdOptions::default() };
        let mut sgd = Sgd::new(parameters.to_vec(), options).unwrap();
        for t in 0..3 {
            give(&parameters, t, false);
            sgd.step().unwrap();
            let state = sgd.state().unwrap();
            for other in [0.0, 0.9] {
                sgd.groups()[0].options.momentum = other;
                sgd.load_state(&state).unwrap();
            }
            sgd.groups()[0].options.momentum = momentum;
            assert_eq!(state.groups[0].iter().map(|state| state.step).collect::<Vec<_>>(), [t as u64 + 1, 0]);
        }
    }
    let parameters = parameters();
    let momentum = SgdOptions { momentum: 0.9, ..SgdOptions::default() };
    let mut sgd = Sgd::new(parameters.to_vec(), momentum).unwrap();
    let mut adam = Adam::new(parameters.to_vec(), AdamOptions::default()).unwrap();
    give(&parameters, 0, true);
    sgd.step().unwrap();
    adam.step().unwrap();
    let told = |error: Error| error.to_string();
    let text = "load_state: the number of tensors of group 0, parameter 0 doesn't fit, expected";
    assert_eq!(told(adam.load_state(&sgd.state().unwrap()).unwrap_err()), format!("{text} 2, found 1"));
    assert_eq!(told(sgd.load_state(&adam.state().unwrap()).unwrap_err()), format!("{text} 1, found 2"));
    let mut bare = adam.state().unwrap();
    bare.groups[0][0].tensors.clear();
    assert_eq!(told(adam.load_state(&bare).unwrap_err()), format!("{text} 2, found 0"));
}

/// A captured step goes on from what is loaded, with a momentum as without one.
#[test]
fn replays_go_on_from_loaded_state() {
    let run = |captured: bool| {
        let parameters = parameters();
        give(&parameters, 0, true);
        let options = SgdOptions { lr: 0.1, momentum: 0.9, ..SgdOptions::default() };
        let mut sgd = Sgd::new(parameters.to_vec(), options).unwrap();
        let empty = sgd.state().unwrap();
        let graph = captured.then(|| capture(device(), || sgd.step()).unwrap());
        let step = |sgd: &mut Sgd| match &graph {
            Some(graph) => graph.replay().unwrap(),
            None => sgd.step().unwrap(),
        };
        step(&mut sgd);
        let one = sgd.state().unwrap();
        step(&mut sgd);
        sgd.load_state(&one).unwrap();
        step(&mut sgd);
        sgd.load_state(&empty).unwrap();
        step(&mut sgd);
        parameters.map(|parameter| parameter.detach().to_vec::<f64>().unwrap())
    };
    assert_eq!(run(true), run(false));
}

/// At once and, if they are set later, at the next step, which changes nothing.
#[test]
fn options_out_of_range_are_refused() {
    let is_told = |error: Error, what: &str, found: f64| {
        let text = error.to_string();
        assert!(text.contains(&format!(": {what} is out of range, expected ")), "{text}");
        assert!(text.ends_with(&format!(", found {found}")), "{text}");
    };
    type Field<O> = (&'static str, fn(&mut O, f64));
    let sgd: [Field<SgdOptions>; 4] = [
        ("lr", |options, value| options.lr = value),
        ("momentum", |options, value| options.momentum = value),
        ("dampening", |options, value| options.dampening = value),
        ("weight_decay", |options, value| options.weight_decay = value),
    ];
    let adam: [Field<AdamOptions>; 5] = [
        ("lr", |options, value| options.lr = value),
        ("beta1", |options, value| options.beta1 = value),
        ("beta2", |options, value| options.beta2 = value),
        ("eps", |options, value| options.eps = value),
        ("weight_decay", |options, value| options.weight_decay = value),
    ];
    for bad in [f64::NAN, -0.1, f64::INFINITY, f64::NEG_INFINITY] {
        let [p, q] = parameters();
        give(&[p.clone(), q.clone()], 0, true);
        let before = [&p, &q].map(|parameter| parameter.detach().to_vec::<f64>().unwrap());
        for (what, set) in sgd {
            let mut options = SgdOptions::default();
            set(&mut options, bad);
            is_told(Sgd::new(vec![p.clone()], options).unwrap_err(), what, bad);
            // The first group is in order.
            let groups = [&p, &q].map(|parameter| Group::new(vec![parameter.clone()], SgdOptions::default()));
            let mut sgd = Sgd::with_groups(groups.into()).unwrap();
            set(&mut sgd.groups()[1].options, bad);
            is_told(sgd.step().unwrap_err(), what, bad);
        }
        for (what, set) in adam {
            let mut options = AdamOptions::default();
            set(&mut options, bad);
            is_told(Adam::new(vec![p.clone()], options).unwrap_err(), what, bad);
            for capturable in [false, true] {
                let good = AdamOptions { capturable, ..AdamOptions::default() };
                let groups = [&p, &q].map(|parameter| Group::new(vec![parameter.clone()], good));
                let mut adam = Adam::with_groups(groups.into()).unwrap();
                set(&mut adam.groups()[1].options, bad);
                is_told(adam.step().unwrap_err(), what, bad);
                assert!(adam.state().unwrap().groups.iter().flatten().all(|state| state.step == 0));
            }
        }
        assert_eq!([&p, &q].map(|parameter| parameter.detach().to_vec::<f64>().unwrap()), before);
    }
}

/// One type for a function that uses several crates.
#[test]
fn errors_of_all_layers_are_one() {
    fn mixed(which: usize) -> raddle_tensor::Result<()> {
        let [p, q] = parameters();
        match which {
            0 => p.sum(.., false)?.backward()?,
            1 => p.add(&q).map(drop)?,
            2 => _ = Sgd::new(vec![p, q], SgdOptions { lr: -1.0, ..SgdOptions::default() })?,
            _ => p.backward()?,
        }
        Ok(())
    }
    mixed(0).unwrap();
    assert!(matches!(mixed(1), Err(raddle_tensor::Error::View(_))));
    let error = mixed(2).unwrap_err();
    assert_eq!(
        error.to_string(),
        "sgd: lr is out of range, expected a finite number that isn't negative, found -1"
    );
    let raddle_tensor::Error::Layer(inner) = &error else { panic!("{error:?}") };
    assert!(matches!(inner.downcast_ref(), Some(Error::Option { what: "lr", .. })));
    assert!(inner.downcast_ref::<raddle_grad::Error>().is_none());
    assert_eq!(error, mixed(2).unwrap_err());
    assert_ne!(error, mixed(3).unwrap_err());
    // There and back it stays what it was.
    let shapes = mixed(1).unwrap_err();
    assert_eq!(
        raddle_tensor::Error::from(Error::from(raddle_tensor::Error::from(raddle_grad::Error::from(
            shapes.clone()
        )))),
        shapes
    );
}

#[test]
fn fault_unused_state_goes() {
    assert_caught(Fault::unused_state_goes, "options::options_of_sgd_change_as_in_pytorch");
}

#[test]
fn fault_own_state_is_refused() {
    assert_caught(Fault::own_state_is_refused, "options::an_optimizer_loads_what_it_has_saved");
}
