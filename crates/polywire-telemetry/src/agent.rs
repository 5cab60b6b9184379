//! A node: runs probes and publishes their samples.

use std::{collections::BTreeMap, fmt, process, sync::Arc, time::Duration};

use polywire::{Node, NodeError, Publisher, Subscriber, Wire};

use crate::{
    Answer, Application, Identity, MeasureError, Moment, NodeDescription, Plan, Probe, ProbeDescription, Request,
    Schedule, Setting, Thinner, application,
    description::{ANSWERS, NODES, REQUESTS, events_qos, nodes_qos, topic_of},
    host::Host,
    identity::host_name,
    packet::StreamDescription,
    uplink::{self, Format, Keep, Rule, UplinkHandle},
};

/// The most probes of a node.
pub const MOST_PROBES: usize = 4096;

/// The most requests that a node handles in one turn.
const MOST_REQUESTS: usize = 64;

/// Why a probe cannot run.
///
/// ```
/// use polywire::Node;
/// use polywire_telemetry::{Agent, AgentError, Identity, Moment, Plan, system::{self, Host}};
///
/// let (wire, now) = ("cdr@inproc/agent-error-doc", Moment::default());
/// let mut agent = Agent::new(Node::new(), Identity::new("house")?, Host::at("/nowhere"), wire, now)?;
/// assert!(matches!(agent.add(Plan::of(system::find("load")?)), Err(AgentError::Measure(_))));
/// agent.add(Plan::of(system::find("clock")?))?;
/// assert!(matches!(agent.add(Plan::of(system::find("clock")?)), Err(AgentError::Plan(_))));
/// assert_eq!((agent.description().probes.len(), agent.wait(now).is_zero()), (1, true));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The probe cannot be opened.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// Its topic cannot be published.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The node has a probe of this name, or as many as it can have; or the endpoint of a topic
    /// would change.
    #[error("{0}")]
    Plan(String),
}

/// A node that runs probes.
///
/// It starts no thread and reads no clock: call [`Agent::turn`] when [`Agent::wait`] says so. A
/// probe that nobody listens to is not sampled, unless the node sends its samples to a collector
/// ([`Agent::send_to`]).
///
/// ```
/// use polywire::{Node, coding::Discovered};
/// use polywire_telemetry::{Agent, Identity, Moment, Plan, system::{self, Host}};
/// use std::time::Duration;
///
/// let wire = "json@inproc/agent-doc";
/// let mut agent = Agent::new(Node::new(), Identity::new("pump-house")?, Host::this(), wire, Moment::default())?;
/// agent.add(Plan::of(system::find("clock")?))?;
/// let node = Node::new();
/// let samples = node.subscribe_of("probes/pump-house/clock", Some(wire), Discovered::new()?)?.open();
/// let mut now = Moment::default();
/// let sample = loop {
///     agent.turn(now);
///     now.steady += Duration::from_secs(10);
///     if let Some(sample) = samples.recv_timeout(Duration::from_millis(10)) {
///         break sample;
///     }
/// };
/// assert_eq!(sample.value.f64("interval_s")?, 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Agent {
    node: Node,
    identity: Identity,
    host: Host,
    wire: Wire,
    collector: Option<UplinkHandle>,
    running: BTreeMap<usize, Running>,
    schedule: Schedule,
    added: usize,
    latest: Moment,
    described: Publisher<NodeDescription>,
    requests: Subscriber<Request>,
    answers: Publisher<Answer>,
    /// What does not change of the description.
    itself: NodeDescription,
    /// The description has changed since it was published.
    is_news: bool,
}

struct Running {
    plan: Plan,
    probe: Box<dyn Probe>,
    thinner: Thinner,
    /// Its stream to the collector.
    stream: Option<Stream>,
    /// How many there were at the latest sample.
    subscribers: usize,
    problem: String,
}

/// The samples of a probe on their way to the collector. Dropping it ends them; those that wait are
/// sent.
struct Stream {
    collector: UplinkHandle,
    number: u32,
    wire: String,
    rule: Rule,
    format: Format,
    /// The collector has other samples than those who listen, so it needs a thinner of its own.
    thinner: Thinner,
    payload: Vec<u8>,
}

impl Agent {
    /// A node without probes. `wire` is the wire of its topics unless a probe has its own.
    pub fn new(node: Node, identity: Identity, host: Host, wire: &str, now: Moment) -> Result<Agent, NodeError> {
        let requests = node.subscribe::<Request>(REQUESTS, Some(wire))?.qos(events_qos())?.open();
        let answers = node.publish::<Answer>(ANSWERS, Some(wire))?.qos(events_qos())?.open()?;
        let described = node.publish::<NodeDescription>(NODES, Some(wire))?.qos(nodes_qos())?.open()?;
        let itself = NodeDescription {
            uuid: identity.uuid.to_string(),
            name: identity.name.clone(),
            host: host_name(),
            process: process::id(),
            started_ns: now.wall_ns,
            probes: Vec::new(),
        };
        Ok(Agent {
            node,
            identity,
            host,
            wire: wire.parse()?,
            collector: None,
            running: BTreeMap::new(),
            schedule: Schedule::default(),
            added: 0,
            latest: now,
            described,
            requests,
            answers,
            itself,
            is_news: true,
        })
    }

    /// Sends the samples of all probes to a collector, as their rules say, and adds the probe
    /// `uplink`, which says how that goes. Fails if a probe's format cannot be kept, or if there is
    /// a probe of this name.
    pub fn send_to(&mut self, collector: UplinkHandle) -> Result<(), AgentError> {
        let rule = Rule { keep: Keep::Last(1), ..Rule::default() };
        let plan = Plan { rule, ..Plan::of(&uplink::probe::PROBE) };
        self.run(plan, uplink::probe::probe(collector.clone()))?;
        self.collector = Some(collector);
        let wires = self.running.values().map(|running| self.wire_of(&running.plan)).collect::<Result<Vec<_>, _>>()?;
        for (running, wire) in self.running.values_mut().zip(wires) {
            let stream = Stream::open(&self.identity.name, self.collector.as_ref(), &running.plan, wire)?;
            running.stream = begun(stream, &mut *running.probe)?;
        }
        Ok(())
    }

    /// Opens a probe and its topic.
    pub fn add(&mut self, plan: Plan) -> Result<(), AgentError> {
        let probe = (plan.probe.open)(&self.host, &plan.settings)?;
        self.run(plan, probe)
    }

    /// Opens the topic of an application's probe. Threads of the application go on updating its
    /// cells.
    pub fn add_application<A: Application>(&mut self, instance: &str, cells: &Arc<A>) -> Result<(), AgentError> {
        self.run(application::plan::<A>(instance)?, application::probe(cells))
    }

    fn run(&mut self, plan: Plan, mut probe: Box<dyn Probe>) -> Result<(), AgentError> {
        if self.running.len() >= MOST_PROBES {
            return Err(AgentError::Plan(format!("a node has at most {MOST_PROBES} probes")));
        }
        if self.running.values().any(|running| running.plan.instance == plan.instance) {
            return Err(AgentError::Plan(format!("there is a probe '{}' already", plan.instance)));
        }
        let wire = self.wire_of(&plan)?;
        let stream = Stream::open(&self.identity.name, self.collector.as_ref(), &plan, wire.clone())?;
        probe.advertise(&self.node, &self.topic(&plan), Some(&wire))?;
        let stream = begun(stream, &mut *probe)?;
        self.added += 1;
        if plan.enabled {
            self.schedule.set(self.added, plan.every, self.latest.steady);
        }
        self.is_news = true;
        let thinner = Thinner::new(plan.thin.clone());
        let running = Running { plan, probe, thinner, stream, subscribers: 0, problem: String::new() };
        self.running.insert(self.added, running);
        Ok(())
    }

    /// Handles requests, and samples and publishes the probes that are due. Never blocks longer
    /// than reading the system and publishing take.
    pub fn turn(&mut self, now: Moment) {
        self.latest = now;
        for _ in 0..MOST_REQUESTS {
            let Some(request) = self.requests.try_recv() else { break };
            self.answer(&request.value);
        }
        for number in self.schedule.due(now.steady) {
            if let Some(running) = self.running.get_mut(&number) {
                let problem = running.problem.clone();
                running.turn(now, false);
                self.is_news |= running.problem != problem;
            }
        }
        self.describe();
    }

    /// Samples and publishes a probe now, whatever its thinning says. Returns false if there is no
    /// such probe, or if nobody listens to it.
    pub fn flush(&mut self, instance: &str, now: Moment) -> bool {
        let mut all = self.running.values_mut();
        all.find(|running| running.plan.instance == instance).is_some_and(|running| running.turn(now, true))
    }

    /// How long until the next probe is due; [`Duration::MAX`] if none runs. Requests wait until
    /// the next turn, so turns should not be more than a fraction of a second apart.
    pub fn wait(&self, now: Moment) -> Duration {
        self.schedule.next().map_or(Duration::MAX, |next| next.saturating_sub(now.steady))
    }

    /// What the node says about itself.
    pub fn description(&self) -> NodeDescription {
        let probes = self.running.values().map(|running| running.describe(&self.topic(&running.plan))).collect();
        NodeDescription { probes, ..self.itself.clone() }
    }

    /// Changes a probe as a request says. If a part is wrong, nothing changes.
    pub fn set(&mut self, instance: &str, settings: &[Setting]) -> Result<(), AgentError> {
        let found = self.running.iter().find(|(_, running)| running.plan.instance == instance);
        let Some((number, running)) = found else {
            let names = self.running.values().map(|running| running.plan.instance.as_str());
            return Err(MeasureError::unknown("probe", instance, names).into());
        };
        let (number, mut plan) = (*number, running.plan.clone());
        settings.iter().try_for_each(|setting| plan.set(&setting.name, &setting.value))?;
        let (topic, wire, before) = (self.topic(&plan), self.wire_of(&plan)?, self.wire_of(&running.plan)?);
        // Whoever may change probes may not make the node connect to other places.
        if wire.split_once('@').map(|(_, place)| place) != before.split_once('@').map(|(_, place)| place) {
            return Err(AgentError::Plan(format!("a topic keeps its endpoint: '{before}' cannot become '{wire}'")));
        }
        let fresh = match plan.settings == running.plan.settings {
            true => None,
            false => Some((plan.probe.open)(&self.host, &plan.settings)?),
        };
        let Some(running) = self.running.get_mut(&number) else { return Ok(()) };
        let is_same = |stream: &Stream| stream.wire == wire && stream.rule == plan.rule;
        let stream = match running.stream.as_ref().is_some_and(is_same) {
            true => None,
            false => Some(Stream::open(&self.identity.name, self.collector.as_ref(), &plan, wire.clone())?),
        };
        let rewired = plan.wire != running.plan.wire;
        if let Some(mut probe) = fresh {
            probe.advertise(&self.node, &topic, Some(&wire))?;
            running.probe = probe;
        } else if rewired {
            running.probe.advertise(&self.node, &topic, Some(&wire))?;
        }
        let stream = stream.unwrap_or_else(|| running.stream.take());
        running.stream = begun(stream, &mut *running.probe)?;
        match plan.enabled {
            true => self.schedule.set(number, plan.every, self.latest.steady),
            false => self.schedule.remove(number),
        }
        running.thinner = Thinner::new(plan.thin.clone());
        running.stream.iter_mut().for_each(|stream| stream.thinner = Thinner::new(plan.thin.clone()));
        running.plan = plan;
        self.is_news = true;
        Ok(())
    }

    fn answer(&mut self, request: &Request) {
        if request.node != self.itself.uuid {
            return;
        }
        let problem = self.set(&request.instance, &request.settings).err();
        let problem = problem.map(|error| chain(&error)).unwrap_or_default();
        // The new description leaves before the answer, so whoever has the answer can read it.
        self.describe();
        let answer = Answer { id: request.id.clone(), node: request.node.clone(), problem };
        if let Err(error) = self.answers.publish(&answer) {
            log::warn!("the answer to a request cannot be published: {error}");
        }
    }

    /// Publishes the description if it has changed.
    fn describe(&mut self) {
        if !self.is_news {
            return;
        }
        match self.described.publish(&self.description()) {
            Ok(_) => self.is_news = false,
            Err(error) => log::warn!("the node cannot describe itself: {error}"),
        }
    }

    fn topic(&self, plan: &Plan) -> String {
        topic_of(&self.identity.name, &plan.instance)
    }

    /// The wire of a probe's topic. What the probe's own leaves out is as the node's.
    fn wire_of(&self, plan: &Plan) -> Result<String, NodeError> {
        let own = plan.wire.as_deref().map(str::parse::<Wire>).transpose()?;
        Ok(own.map_or_else(|| self.wire.clone(), |own| own.or(&self.wire)).to_string())
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} {} with {} probes", self.identity.name, self.identity.uuid, self.running.len())
    }
}

impl Running {
    /// Samples the probe, and publishes and keeps the sample as far as that is asked for or due.
    /// Returns whether anybody wants it.
    fn turn(&mut self, now: Moment, must: bool) -> bool {
        let before = std::mem::replace(&mut self.subscribers, self.probe.subscribers());
        if self.subscribers == 0 && self.stream.is_none() {
            return false;
        }
        if must || self.subscribers > before {
            self.thinner.reset();
        }
        if must {
            self.stream.iter_mut().for_each(|stream| stream.thinner.reset());
        }
        self.problem = self.sample(now).err().unwrap_or_default();
        true
    }

    fn sample(&mut self, now: Moment) -> Result<(), String> {
        self.probe.sample(now).map_err(|error| chain(&error))?;
        // Those who listen and the collector do not depend on each other.
        let kept = self.stream.as_mut().map_or(Ok(()), |stream| stream.keep(&*self.probe, now));
        match self.subscribers > 0 && self.thinner.sends(self.probe.view(), now) {
            true => self.probe.publish().map_err(|error| chain(&error)).and(kept),
            false => kept,
        }
    }

    fn describe(&self, topic: &str) -> ProbeDescription {
        let Running { plan, problem, .. } = self;
        let parameter = |parameter: &crate::Parameter| Setting {
            name: parameter.name.to_owned(),
            value: plan.settings.get(parameter).to_owned(),
        };
        ProbeDescription {
            instance: plan.instance.clone(),
            probe: plan.probe.name.to_owned(),
            uuid: plan.probe.uuid.to_string(),
            version: plan.probe.version.to_owned(),
            pdl: plan.probe.pdl.text().to_owned(),
            topic: topic.to_owned(),
            wire: plan.wire.clone().unwrap_or_default(),
            every_s: plan.every.as_secs_f64(),
            enabled: plan.enabled,
            thin: plan.thin.to_string(),
            keep: plan.rule.keep.to_string(),
            batch: plan.rule.batch.to_string(),
            priority: plan.rule.priority,
            problem: problem.clone(),
            parameters: plan.probe.parameters.iter().map(parameter).collect(),
        }
    }
}

impl Stream {
    /// Opens the stream of a probe; `None` if it has none. It has no samples before [`begun`].
    fn open(
        node: &str,
        collector: Option<&UplinkHandle>,
        plan: &Plan,
        wire: String,
    ) -> Result<Option<Stream>, AgentError> {
        let Some(collector) = collector.filter(|_| plan.rule.keep != Keep::None) else { return Ok(None) };
        let format = Format::of(&wire.parse().map_err(NodeError::from)?)?;
        let mut description = StreamDescription {
            node: node.to_owned(),
            instance: plan.instance.clone(),
            probe: plan.probe.uuid.0,
            version: plan.probe.version.to_owned(),
            schema: (plan.probe.shape)().schema().to_bytes(),
            ..StreamDescription::default()
        };
        format.describe(&mut description);
        let number = collector.open(description, plan.rule).map_err(|error| AgentError::Plan(error.to_string()))?;
        let (collector, thinner) = (collector.clone(), Thinner::new(plan.thin.clone()));
        Ok(Some(Stream { collector, number, wire, rule: plan.rule, format, thinner, payload: Vec::new() }))
    }

    /// Keeps the probe's latest sample for the collector, if that is due.
    fn keep(&mut self, probe: &dyn Probe, now: Moment) -> Result<(), String> {
        if !self.thinner.sends(probe.view(), now) {
            return Ok(());
        }
        self.payload.clear();
        if probe.encode(&mut self.payload).map_err(|error| chain(&error))? {
            self.collector.offer(self.number, &self.payload, now.wall_ns);
        }
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.collector.close(self.number);
    }
}

/// The stream, when the probe has an encoder for it.
fn begun(stream: Option<Stream>, probe: &mut dyn Probe) -> Result<Option<Stream>, NodeError> {
    if let Some(Stream { format, .. }) = &stream {
        let codec = format.codec();
        let failed = |cause| NodeError::Codec { codec: codec.name().to_owned(), cause };
        probe.set_format(codec, format.options()).map_err(failed)?;
    }
    Ok(stream)
}

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}
