//! Operations of probes: their types, what is inherited, and what becomes of them in other
//! languages. `conformance/idl-errors` has what is refused.

use std::time::{Duration, Instant};

use polywire_core::schema::{Schema, Type};
use polywire_idl::{Compiler, Dialect, Document, Operation, emit};

const TANK: &str = r#"
module plant {
    enum Mode { SLOW, FAST };
    abstract probe Device {
        uint32 serial;
        // Sets all to zero.
        void reset();
    };
    [uuid(5e0b2a52-3c0e-4f6e-9d55-1d2c9a6f0b11); version(1.0)]
    probe Tank : Device {
        @unit("m") real64 level;
        /* Drains down to a level.
         * Returns what ran out, in litres. */
        real64 drain(in @unit("m") real64 level,
                     @default("nobody") in string who,
                     // How fast.
                     inout Mode mode, out vector<real32> in);
        real64 void_(in boolean out);
    };
};
"#;

fn parse(text: &str) -> Document {
    Compiler::new().parse_as("tank.pdl", text, Dialect::Pdl).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The names and types of the members of the root.
fn members(schema: &Schema) -> Vec<(&str, &Type)> {
    let Type::Def(root) = schema.root() else { panic!("no structure") };
    schema.members(*root).into_iter().map(|member| (member.name.as_str(), &member.ty)).collect()
}

#[test]
fn an_operation_makes_the_structures_of_dds_rpc() {
    let document = parse(TANK);
    let all: Vec<Operation> = document.operations("Tank").unwrap().collect();
    assert_eq!(all.iter().map(|o| o.name.as_str()).collect::<Vec<_>>(), ["reset", "drain", "void_"]);
    let names = |o: &Operation| (o.request.name().to_owned(), o.reply.name().to_owned());
    assert_eq!(names(&all[0]), ("plant::Device_reset_In".into(), "plant::Device_reset_Out".into()));
    assert_eq!(names(&all[1]), ("plant::Tank_drain_In".into(), "plant::Tank_drain_Out".into()));
    assert_eq!((members(&all[0].request), members(&all[0].reply)), (vec![], vec![]));
    assert_eq!(all[0].doc, "Sets all to zero.");
    assert_eq!(all[1].doc, "Drains down to a level.\nReturns what ran out, in litres.");
    let (request, reply) = (&all[1].request, &all[1].reply);
    let mode = |schema: &Schema| Type::Def(schema.find("Mode").unwrap());
    let taken = [("level", &Type::Float64), ("who", &Type::string()), ("mode", &mode(request))];
    assert_eq!(members(request), taken);
    let given = [("mode", &mode(reply)), ("in", &Type::sequence(Type::Float32)), ("return_", &Type::Float64)];
    assert_eq!(members(reply), given);
    let Type::Def(root) = request.root() else { panic!("no structure") };
    let parameters = request.members(*root);
    assert_eq!((parameters[0].annotations[0].name.as_str(), parameters[2].doc.as_str()), ("unit", "How fast."));
    assert!(parameters[1].default.is_some());

    // The probe is what it would be without them, and the only topic.
    let topics: Vec<&str> = document.own_topic_types().map(|def| def.name.as_str()).collect();
    assert_eq!(topics, ["plant::Tank"]);
    assert_eq!(document.definitions().name(), "plant::Tank");
    let without: String = TANK.lines().filter(|line| !line.contains("real64 void_")).collect::<Vec<_>>().join("\n");
    let tank = document.schema("Tank").unwrap();
    assert_eq!(tank, parse(&without).schema("Tank").unwrap());
    assert_eq!(tank.defs().len(), 2, "the probe and its base");
    assert_eq!(document.operations("Mode").unwrap().count(), 0);
    assert!(document.operations("Tnak").is_err());
}

#[test]
fn every_target_has_the_structures() {
    let document = parse(TANK);
    let idl = (emit::emitter("idl").unwrap().emit)(document.definitions(), &[]).unwrap();
    let again = Compiler::new().parse_str("again.idl", &idl).unwrap_or_else(|errors| panic!("{errors}\n{idl}"));
    for operation in document.operations("Tank").unwrap() {
        for schema in [&operation.request, &operation.reply] {
            let name = schema.name();
            assert_eq!(again.schema(name).unwrap().type_hash(), schema.type_hash(), "{name}");
        }
    }
    let rust = emit::rust(document.definitions()).unwrap();
    assert!(rust.contains("pub struct TankDrainIn {") && rust.contains("pub struct DeviceResetOut {}"), "{rust}");
    assert!(rust.contains("        pub return_: f64,"), "{rust}");
    for target in emit::EMITTERS {
        let text = (target.emit)(document.definitions(), &[]).unwrap();
        assert!(text.contains("drain_Out") || target.name == "rust", "{}: {text}", target.name);
    }
}

#[test]
fn an_operation_may_use_what_is_defined_later() {
    let text = "probe B : A { Later ask(in Later x); };
        abstract probe A { int8 a; void reset(in Later l); }; struct Later { uint64 x; };";
    let all: Vec<String> = parse(text).operations("B").unwrap().map(|o| o.request.name().to_owned()).collect();
    assert_eq!(all, ["A_reset_In", "B_ask_In"]);
}

#[test]
fn many_operations_cost_little_and_names_are_limited() {
    let before = Instant::now();
    let many: String = (0..700).map(|number| format!("void o{number}();")).collect();
    let mut text = format!("probe P0 {{ {many} }};\n");
    for number in 1..800 {
        // As deep as a type can be.
        let base = if number < 60 { number - 1 } else { 59 };
        text += &format!("probe P{number} : P{base} {{ void own{number}(); }};\n");
    }
    let document = parse(&text);
    assert_eq!(document.operations("P799").unwrap().count(), 700 + 60);
    let long = "x".repeat(200);
    let text = format!("probe {long} {{ void {long}(); }};");
    let errors = Compiler::new().parse_as("long.pdl", &text, Dialect::Pdl).unwrap_err();
    assert!(errors.to_string().contains("longer than the limit of 255 characters"), "{errors}");
    assert!(before.elapsed() < Duration::from_secs(60));
}
