//! Checks that the Rust example of README.md compiles and works: this file has its lines, in the
//! same order.

const README: &str = include_str!("../../../README.md");

mod shown {
    use polywire::{Message, Node};

    #[derive(Clone, Debug, Default, PartialEq, Message)]
    #[polywire(name = "Plant::Pump")]
    pub struct Pump {
        #[polywire(key)]
        pub id: u32,
        pub pressure_bar: f64,
    }

    pub fn run() -> Result<(), Box<dyn std::error::Error>> {
        let node = Node::new();
        let pumps = node.subscriber_on::<Pump>("pumps", "cdr@local")?;
        let publisher = node.publisher_on::<Pump>("pumps", "cdr@local")?;
        publisher.publish(&Pump { id: 7, pressure_bar: 2.5 })?;
        publisher.set_wire("json")?; // takes effect with the next message; subscribers need no change
        publisher.publish(&Pump { id: 8, pressure_bar: 3.5 })?;
        for id in [7, 8] {
            assert_eq!(pumps.recv().map(|sample| sample.value.id), Some(id));
        }
        Ok(())
    }
}

#[test]
fn it_runs() {
    shown::run().expect("nothing fails");
}

/// Words of Rust, without visibility and line breaks, which differ between the two.
fn words(text: &str) -> Vec<&str> {
    let tokens = text.split(|c: char| c.is_whitespace() || ",;{}".contains(c)).filter(|word| !word.is_empty());
    tokens.filter(|word| *word != "pub").collect()
}

#[test]
fn it_is_the_example_of_the_readme() {
    let shown = README.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block of Rust");
    let source = include_str!("readme.rs");
    let mut ours = words(source).into_iter();
    for word in words(shown) {
        assert!(ours.any(|own| own == word), "'{word}' is not here, or not in this place");
    }
}
