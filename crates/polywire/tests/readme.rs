//! Checks that the Rust example of README.md compiles and works: this file has its lines, in the
//! same order.

use polywire_testing::markdown::{assert_shown, blocks, page};

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

#[test]
fn it_is_the_example_of_the_readme() {
    let shown = blocks(&page("README.md")).into_iter().find(|block| block.info == "rust").expect("a block of Rust");
    assert_shown(&shown.text, include_str!("readme.rs"));
}
