//! A node: runs probes and publishes their samples.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    io,
    path::Path,
    process,
    sync::Arc,
    time::Duration,
};

use polywire::{Message, Node, NodeError, Publisher, Wire, codec::Encoder, service::Service};

use crate::{
    Application, Identity, IdentityError, MeasureError, Moment, NodeDescription, Plan, Probe, ProbeDescription,
    Schedule, Setting, Thinner, application,
    command::{
        self, Action, Audit, AuditFile, Command, CommandReply, Declared, Kept, KeptError, MAX_SETTINGS, Reason,
        Refusal, Refused, service_of,
    },
    description::{NODES, nodes_qos, topic_of},
    host::Host,
    identity::{host_name, is_name},
    input::{self, INPUTS},
    json::json,
    packet::StreamDescription,
    socket::{AdmissionQueue, AdmissionRequest, DeclaredProbe, Operation, Socket},
    uplink::{self, Format, Keep, Rule, UplinkHandle},
};

/// The maximum number of probes of a node.
pub const MAX_PROBES: usize = 4096;

/// The maximum number of probes that programs can declare at the node's sockets.
pub const MAX_DECLARED: usize = 256;

/// The maximum number of commands that an application and the programs at sockets can declare.
pub const MAX_COMMANDS: usize = 256;

/// The maximum number of requests per turn and service: the node's own, and each declared
/// command's.
const MAX_HANDLED: usize = 64;

/// The setting of a node that has a collector: the byte budget of its uplink.
const BUDGET: &str = "budget";

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
    /// The topic of the probe cannot be published.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The node already has a probe or command of this name, or has reached a limit.
    #[error("{0}")]
    Plan(String),
    /// The name of a command cannot be part of a service.
    #[error(transparent)]
    Name(#[from] IdentityError),
}

/// A node that runs probes.
///
/// An agent starts no thread and reads no clock: its owner calls [`Agent::turn`] when the time that
/// [`Agent::wait`] returns has passed. A probe without subscribers is not sampled, unless the node
/// sends its samples to a collector ([`Agent::send_to`]).
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
    admission_queues: Vec<AdmissionQueue>,
    schedule: Schedule,
    added: usize,
    latest: Moment,
    described: Publisher<NodeDescription>,
    commands: Service<Command, CommandReply>,
    /// The encoder that renders commands as JSON.
    text: Encoder<Command>,
    declared: Vec<Box<dyn Declared>>,
    audit: Audit,
    kept: Kept,
    /// The part of the description that does not change.
    itself: NodeDescription,
    /// Whether the description has changed since it was last published.
    is_news: bool,
}

struct Running {
    plan: Plan,
    probe: Box<dyn Probe>,
    thinner: Thinner,
    /// The stream of this probe to the collector.
    stream: Option<Stream>,
    /// The number of subscribers at the latest sample.
    subscribers: usize,
    problem: String,
}

/// The stream of a probe's samples to the collector. Dropping it closes the stream; the uplink
/// still sends the samples that wait.
struct Stream {
    collector: UplinkHandle,
    number: u32,
    wire: String,
    rule: Rule,
    format: Format,
    /// The thinner for the collector, which gets other samples than the subscribers do.
    thinner: Thinner,
    payload: Vec<u8>,
}

impl Agent {
    /// Makes a node without probes. `wire` is the wire of a topic whose probe has no wire of its
    /// own.
    pub fn new(node: Node, identity: Identity, host: Host, wire: &str, now: Moment) -> Result<Agent, NodeError> {
        let described = node.publish::<NodeDescription>(NODES, Some(wire))?.qos(nodes_qos())?.open()?;
        let commands = node.service(&service_of(&identity.name), Some(wire))?.open()?;
        let wire: Wire = wire.parse()?;
        let audit = Audit::new(&node, &identity, &wire)?;
        let itself = NodeDescription {
            uuid: identity.uuid.to_string(),
            name: identity.name.clone(),
            host: host_name(),
            process: process::id(),
            started_ns: now.wall_ns,
            ..NodeDescription::default()
        };
        Ok(Agent {
            node,
            identity,
            host,
            wire,
            collector: None,
            running: BTreeMap::new(),
            admission_queues: Vec::new(),
            schedule: Schedule::default(),
            added: 0,
            latest: now,
            described,
            commands,
            text: command::encoder()?,
            declared: Vec::new(),
            audit,
            kept: Kept::default(),
            itself,
            is_news: true,
        })
    }

    /// Also writes a record of each command to a file, from now on. The reply to a command waits
    /// until its record is on the disk. If the file cannot be written, a warning is logged once,
    /// and commands continue.
    pub fn audit_to(&mut self, file: AuditFile) {
        self.audit.write_to(file);
    }

    /// Opens the file in which commands can keep settings, and applies the kept settings to each
    /// probe that is added from now on. Call it before [`Agent::send_to`] and [`Agent::add`].
    pub fn keep_settings(&mut self, file: &Path) -> Result<(), KeptError> {
        self.kept = Kept::open(file)?;
        Ok(())
    }

    /// Declares a command: a service of the name `telemetry/NODE/command/NAME`, with requests and
    /// replies of these types. The callback runs in [`Agent::turn`] and delays the samples, so long
    /// operations belong on another thread. If the callback returns an `Err` or panics, the call
    /// fails with that error. There is an example at [`crate::command`].
    pub fn add_command<Q: Message, R: Message, E: Display + 'static>(
        &mut self,
        name: &str,
        summary: &str,
        callback: impl FnMut(&Q) -> Result<R, E> + Send + 'static,
    ) -> Result<(), AgentError> {
        self.check_command(name, 1)?;
        let node = &self.identity.name;
        self.declared.push(command::declare(&self.node, &self.wire, node, name, summary, callback)?);
        self.is_news = true;
        Ok(())
    }

    /// Checks whether a command of this name can be added, as one of `more` new commands.
    fn check_command(&self, name: &str, more: usize) -> Result<(), AgentError> {
        if !is_name(name) {
            return Err(IdentityError::Name(name.to_owned()).into());
        }
        if self.declared.len() + more > MAX_COMMANDS {
            return Err(AgentError::Plan(format!("a node has at most {MAX_COMMANDS} commands")));
        }
        if self.declared.iter().any(|declared| declared.description().name == name) {
            return Err(AgentError::Plan(format!("there is a command '{name}' already")));
        }
        Ok(())
    }

    /// Sends the samples of all probes to a collector, according to their rules, and adds the probe
    /// `uplink`, which measures this transfer. Fails if the format of a probe cannot be used for a
    /// stream, or if there is already a probe of the name `uplink`.
    pub fn send_to(&mut self, collector: UplinkHandle) -> Result<(), AgentError> {
        let rule = Rule { keep: Keep::Last(1), ..Rule::default() };
        let plan = Plan { rule, ..Plan::of(&uplink::probe::PROBE) };
        let way = collector.clone();
        self.run(plan, move |_, _| Ok(uplink::probe::probe(way)))?;
        self.collector = Some(collector);
        if let Err(error) = self.set_node(&self.kept.of("")) {
            log::warn!("settings of the node that were kept are left out: {error}");
        }
        let wires = self.running.values().map(|running| self.wire_of(&running.plan)).collect::<Result<Vec<_>, _>>()?;
        for (running, wire) in self.running.values_mut().zip(wires) {
            let stream = Stream::open(&self.identity.name, self.collector.as_ref(), &running.plan, wire)?;
            running.stream = begun(stream, &mut *running.probe)?;
        }
        Ok(())
    }

    /// Also receives samples from programs at a socket, from now on. Each turn processes the
    /// samples that have arrived. Operations of the programs' probes become commands of the node.
    pub fn serve(&mut self, socket: &Socket) {
        self.admission_queues.push(socket.admission_queue());
    }

    /// Returns whether this node has sockets at which programs can send samples.
    pub(crate) fn serves(&self) -> bool {
        !self.admission_queues.is_empty()
    }

    /// Opens a probe and its topic.
    pub fn add(&mut self, plan: Plan) -> Result<(), AgentError> {
        self.run(plan, |host, plan| (plan.probe.open)(host, &plan.settings))
    }

    /// Opens the topic of an application's probe. Threads of the application continue to update its
    /// cells.
    pub fn add_application<A: Application>(&mut self, instance: &str, cells: &Arc<A>) -> Result<(), AgentError> {
        self.run(application::plan::<A>(instance)?, |_, _| Ok(application::probe(cells)))
    }

    /// Adds a probe. `open` receives the final plan, which includes kept settings.
    pub(crate) fn run(
        &mut self,
        mut plan: Plan,
        open: impl FnOnce(&Host, &Plan) -> Result<Box<dyn Probe>, MeasureError>,
    ) -> Result<(), AgentError> {
        if self.running.len() >= MAX_PROBES {
            return Err(AgentError::Plan(format!("a node has at most {MAX_PROBES} probes")));
        }
        if self.running.values().any(|running| running.plan.instance == plan.instance) {
            return Err(AgentError::Plan(format!("there is a probe '{}' already", plan.instance)));
        }
        self.kept.apply(&mut plan);
        let mut probe = open(&self.host, &plan)?;
        let wire = self.wire_of(&plan)?;
        let stream = Stream::open(&self.identity.name, self.collector.as_ref(), &plan, wire.clone())?;
        probe.advertise(&self.node, &self.topic(&plan), Some(&wire))?;
        let stream = begun(stream, &mut *probe)?;
        self.added += 1;
        if plan.is_due_by_time() {
            self.schedule.set(self.added, plan.every, self.latest.steady);
        }
        self.is_news = true;
        let thinner = Thinner::new(plan.thin.clone());
        let running = Running { plan, probe, thinner, stream, subscribers: 0, problem: String::new() };
        self.running.insert(self.added, running);
        Ok(())
    }

    /// Adds a probe that a program has declared, or returns the existing one: several programs may
    /// send samples of one probe. A probe of another type replaces it as soon as no program sends
    /// the existing one any more.
    fn admit(&mut self, instance: &str, declared: DeclaredProbe) -> Result<Arc<DeclaredProbe>, AgentError> {
        if !is_name(instance) {
            return Err(IdentityError::Name(instance.to_owned()).into());
        }
        let found = self.running.iter().find(|(_, running)| running.plan.instance == instance);
        if let Some((number, Running { plan, .. })) = found {
            let taken = |what| AgentError::Plan(format!("there is a probe '{instance}' already, {what}"));
            let present = plan.declared.as_ref().ok_or_else(|| taken("which the node measures itself"))?;
            if present.is_like(&declared) {
                return Ok(present.clone());
            }
            // Two references belong to the plan and the probe; any further one to a program.
            if Arc::strong_count(present) > 2 {
                return Err(taken("with another type, and a program that sends it"));
            }
            let number = *number;
            if let Some(mut former) = self.running.remove(&number) {
                // Samples that programs have sent before they ended are still processed.
                former.take_declared(self.latest);
            }
            self.retire(instance);
        }
        if self.running.values().filter(|running| running.plan.declared.is_some()).count() >= MAX_DECLARED {
            return Err(AgentError::Plan(format!("programs can declare {MAX_DECLARED} probes of a node")));
        }
        let declared = Arc::new(declared);
        let commands = self.forward(instance, &declared)?;
        self.run(declared.plan(instance), |_, _| Ok(declared.probe()))?;
        self.declared.extend(commands);
        Ok(declared)
    }

    /// Opens a command for each operation of a probe.
    fn forward(&self, instance: &str, probe: &DeclaredProbe) -> Result<Vec<Box<dyn Declared>>, AgentError> {
        let (node, all) = (&self.identity.name, probe.operations());
        let open = |operation: &Arc<Operation>| {
            self.check_command(&command::forwarded_name(instance, operation), all.len())?;
            Ok(command::forward(&self.node, &self.wire, node, instance, operation, probe.programs())?)
        };
        all.iter().map(open).collect()
    }

    /// Ends the commands of a declared probe.
    fn retire(&mut self, instance: &str) {
        for mut command in self.declared.extract_if(.., |command| command.instance() == Some(instance)) {
            command.retire(&mut self.audit, self.latest);
        }
    }

    /// Handles commands, and samples and publishes the probes that are due. Blocks at most for the
    /// time that reading the system, publishing, and the callbacks and records of commands take.
    /// Never waits for programs at sockets.
    pub fn turn(&mut self, now: Moment) {
        self.latest = now;
        for _ in 0..MAX_HANDLED {
            let Some(request) = self.commands.recv_timeout(Duration::ZERO) else { break };
            let reply = self.handle(request.value());
            // The new description is published before the reply, so the client that has the reply
            // can read it.
            self.describe();
            let problem = reply.problem();
            let text = json(&self.text, request.value());
            self.audit.record(request.info(), self.commands.service(), text, &problem, now);
            if let Err(error) = request.reply(&reply) {
                log::warn!("the reply to a command cannot be sent: {error}");
            }
        }
        for declared in &mut self.declared {
            (0..MAX_HANDLED).take_while(|_| declared.serve(&mut self.audit, now)).for_each(drop);
        }
        while let Some(AdmissionRequest { instance, declared, answer }) =
            self.admission_queues.iter().find_map(AdmissionQueue::next)
        {
            let admitted = self.admit(&instance, declared);
            // Fails if the program has disconnected.
            let _ = answer.send(admitted.map_err(|error| chain(&error)));
        }
        // The messages of one turn share a packet.
        let node = self.node.clone();
        node.together(|| self.sample(now));
        self.describe();
    }

    /// Samples the probes that are due, and processes the samples that programs have sent.
    fn sample(&mut self, now: Moment) {
        for running in self.running.values_mut() {
            self.is_news |= running.take_declared(now);
        }
        for number in self.schedule.due(now.steady) {
            if let Some(running) = self.running.get_mut(&number) {
                let problem = running.problem.clone();
                running.turn(now, false);
                self.is_news |= running.problem != problem;
            }
        }
    }

    /// Samples and publishes a probe now, regardless of its thinning. Returns false if there is no
    /// such probe, or if it has neither a subscriber nor a collector.
    pub fn flush(&mut self, instance: &str, now: Moment) -> bool {
        let mut all = self.running.values_mut();
        all.find(|running| running.plan.instance == instance).is_some_and(|running| running.turn(now, true))
    }

    /// Returns the time until the next probe is due; [`Duration::MAX`] if no probe is scheduled.
    /// Requests wait until the next turn: an arriving request unparks the thread of the latest
    /// turn.
    pub fn wait(&self, now: Moment) -> Duration {
        self.schedule.next().map_or(Duration::MAX, |next| next.saturating_sub(now.steady))
    }

    /// Returns the description of the node.
    pub fn description(&self) -> NodeDescription {
        let probes = self.running.values().map(|running| running.describe(&self.topic(&running.plan))).collect();
        let commands = self.declared.iter().map(|declared| declared.description().clone()).collect();
        let budget = |collector: &UplinkHandle| Setting {
            name: BUDGET.to_owned(),
            value: collector.budget().map_or("off".to_owned(), |bytes| bytes.to_string()),
        };
        let settings = self.collector.iter().map(budget).collect();
        NodeDescription { probes, commands, settings, ..self.itself.clone() }
    }

    /// Executes a command as if it had arrived over the network, but leaves no audit record.
    pub fn handle(&mut self, command: &Command) -> CommandReply {
        let refused = self.obey(command).err().map_or(Vec::new(), |Refused(all)| all);
        let is_asked = command.action == Action::Describe && refused.is_empty();
        CommandReply { refused, description: is_asked.then(|| self.description()) }
    }

    fn obey(&mut self, command: &Command) -> Result<(), Refused> {
        let Command { node, action, instance, settings, keep } = command;
        if *node != self.itself.uuid {
            let text = format!("this node has the UUID {}, and not {node}", self.itself.uuid);
            return Err(Refused::whole(Reason::WrongNode, text));
        }
        if settings.len() > MAX_SETTINGS {
            return Err(Refused::whole(Reason::Impossible, format!("a command has at most {MAX_SETTINGS} settings")));
        }
        if *keep && !self.kept.has_file() {
            return Err(Refused::whole(Reason::Impossible, "this node has no file to keep settings in"));
        }
        let enabled = |value: &str| Setting { name: "enabled".to_owned(), value: value.to_owned() };
        let enabled = match action {
            Action::Describe => return Ok(()),
            Action::Set => None,
            Action::Start => Some(enabled("true")),
            Action::Stop => Some(enabled("false")),
        };
        let settings: Vec<Setting> = settings.iter().cloned().chain(enabled).collect();
        self.set(instance, &settings)?;
        match *keep {
            true => self.kept.add(instance, &settings).map_err(|error| not_kept(&error)),
            false => Ok(()),
        }
    }

    /// Changes settings of a probe, or of the node itself if `instance` is empty. If one of them is
    /// wrong, nothing changes.
    pub fn set(&mut self, instance: &str, settings: &[Setting]) -> Result<(), Refused> {
        if instance.is_empty() {
            return self.set_node(settings);
        }
        let (number, plan) = self.changed(instance, settings)?;
        self.change(number, plan).map_err(|error| Refused::whole(Reason::Impossible, chain(&error)))
    }

    fn set_node(&mut self, settings: &[Setting]) -> Result<(), Refused> {
        let budget = |setting: &Setting| match (setting.name.as_str(), &self.collector) {
            (BUDGET, Some(_)) => budget_of(&setting.value),
            (BUDGET, None) => Err(MeasureError::Unknown("a node without a collector has no budget".to_owned())),
            (name, _) => Err(MeasureError::unknown("setting of a node", name, [BUDGET])),
        };
        let budgets = checked(settings, budget)?;
        for (budget, collector) in budgets.into_iter().zip(&self.collector) {
            collector.set_budget(budget);
            self.is_news = true;
        }
        Ok(())
    }

    /// Returns the number of a probe, and its plan with these settings applied.
    fn changed(&self, instance: &str, settings: &[Setting]) -> Result<(usize, Plan), Refused> {
        let found = self.running.iter().find(|(_, running)| running.plan.instance == instance);
        let Some((number, Running { plan: before, .. })) = found else {
            let names = self.running.values().map(|running| running.plan.instance.as_str());
            let unknown = MeasureError::unknown("probe", instance, names);
            return Err(Refused::whole(Reason::UnknownProbe, unknown));
        };
        let mut plan = before.clone();
        // The right to change probes is not the right to run programs or to connect to other hosts.
        let is_input = INPUTS.iter().any(|input| std::ptr::eq(input, before.probe));
        let is_fixed = |name: &str| is_input && before.probe.parameters.iter().any(|known| known.name == name);
        checked(settings, |setting| match is_fixed(&setting.name) {
            true => Err(input::problem(&format!("parameter '{}'", setting.name), "only the configuration can set it")),
            false => plan.set(&setting.name, &setting.value),
        })?;
        let impossible = |error| Refused::whole(Reason::Impossible, error);
        let (wire, before) = (self.wire_of(&plan).map_err(impossible)?, self.wire_of(before).map_err(impossible)?);
        // The right to change probes is not the right to connect the node to another endpoint.
        let [to, from] = [&wire, &before].map(|wire| wire.split_once('@').map_or("", |(_, place)| place));
        if to != from && !self.node.may_follow(to) {
            let text = format!("no pattern of node.follow fits the endpoint, so '{before}' cannot become '{wire}'");
            return Err(Refused(vec![Refusal { setting: "wire".to_owned(), reason: Reason::Impossible, text }]));
        }
        Ok((*number, plan))
    }

    /// Replaces the plan of a probe.
    fn change(&mut self, number: usize, plan: Plan) -> Result<(), AgentError> {
        let (topic, wire) = (self.topic(&plan), self.wire_of(&plan)?);
        let Some(running) = self.running.get_mut(&number) else { return Ok(()) };
        let fresh = match plan.settings == running.plan.settings {
            true => None,
            false => Some((plan.probe.open)(&self.host, &plan.settings)?),
        };
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
        match plan.is_due_by_time() {
            true => self.schedule.set(number, plan.every, self.latest.steady),
            false => self.schedule.remove(number),
        }
        running.thinner = Thinner::new(plan.thin.clone());
        running.stream.iter_mut().for_each(|stream| stream.thinner = Thinner::new(plan.thin.clone()));
        running.plan = plan;
        self.is_news = true;
        Ok(())
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

    /// Returns the wire of a probe's topic. The node's wire supplies what the probe's own leaves
    /// out.
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
    /// Samples the probe if it has a subscriber or a stream. Publishes and keeps the sample
    /// according to the thinning, or always if `must`. Returns whether it sampled.
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

    /// Processes the samples that a program has sent. Returns whether the probe's problem has
    /// changed.
    fn take_declared(&mut self, now: Moment) -> bool {
        let Some(declared) = self.plan.declared.clone() else { return false };
        let mut is_news = false;
        // Samples that arrive meanwhile are for the next turn.
        for _ in 0..declared.len() {
            let problem = self.problem.clone();
            if !self.plan.enabled || !self.turn(now, false) {
                declared.clear();
                break;
            }
            is_news |= self.problem != problem;
        }
        is_news
    }

    fn sample(&mut self, now: Moment) -> Result<(), String> {
        self.probe.sample(now).map_err(|error| chain(&error))?;
        // A failure of the publisher does not affect the collector, and vice versa.
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
            uuid: plan.uuid().to_string(),
            version: plan.version().to_owned(),
            pdl: plan.pdl().to_owned(),
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
    /// Opens the stream of a probe; `None` if the probe sends none. It carries samples after
    /// [`begun`].
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
            probe: plan.uuid().0,
            version: plan.version().to_owned(),
            schema: plan.schema().to_bytes(),
            ..StreamDescription::default()
        };
        format.describe(&mut description);
        let number = collector.open(description, plan.rule).map_err(|error| AgentError::Plan(error.to_string()))?;
        let (collector, thinner) = (collector.clone(), Thinner::new(plan.thin.clone()));
        Ok(Some(Stream { collector, number, wire, rule: plan.rule, format, thinner, payload: Vec::new() }))
    }

    /// Offers the probe's latest sample to the uplink, if the thinning lets it pass.
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

/// Returns the stream after setting the probe's encoder to the stream's format.
fn begun(stream: Option<Stream>, probe: &mut dyn Probe) -> Result<Option<Stream>, NodeError> {
    if let Some(Stream { format, .. }) = &stream {
        let codec = format.codec();
        let failed = |cause| NodeError::Codec { codec: codec.name().to_owned(), cause };
        probe.set_format(codec, format.options()).map_err(failed)?;
    }
    Ok(stream)
}

/// Checks all settings. Returns their values, or a refusal for each wrong one.
fn checked<T>(settings: &[Setting], check: impl FnMut(&Setting) -> Result<T, MeasureError>) -> Result<Vec<T>, Refused> {
    let mut check = check;
    let (mut all, mut refused) = (Vec::new(), Vec::new());
    for setting in settings {
        match check(setting) {
            Ok(value) => all.push(value),
            Err(error) => refused.push(Refusal::of(setting, &error)),
        }
    }
    if refused.is_empty() { Ok(all) } else { Err(Refused(refused)) }
}

/// Parses a budget in bytes a second; `None` means no limit.
fn budget_of(value: &str) -> Result<Option<u64>, MeasureError> {
    let bytes = value.parse().ok().filter(|bytes| *bytes > 0);
    match (value, bytes) {
        ("off", _) => Ok(None),
        (_, Some(bytes)) => Ok(Some(bytes)),
        _ => Err(MeasureError::Value {
            parameter: BUDGET.to_owned(),
            value: value.to_owned(),
            expected: "'off', or a number of bytes a second from 1 up".to_owned(),
        }),
    }
}

fn not_kept(error: &io::Error) -> Refused {
    Refused::whole(Reason::NotKept, format!("done, but not kept for the next start: {error}"))
}

/// Returns an error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}
