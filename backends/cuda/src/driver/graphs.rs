//! Captures and executable graphs.

use super::*;

impl Driver<'_> {
    /// From now on a stream notes what is put on it. Relaxed: whatever any thread calls on anything else is allowed.
    pub fn stream_begin_capture(self, stream: Stream) -> Result<(), DeviceError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the handle lives for ever.
        self.check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream.0, mode) })
    }

    /// Ends a capture; what was noted. To be called also when the capture has failed.
    pub fn stream_end_capture(self, stream: Stream) -> Result<Graph, DeviceError> {
        let mut graph = ptr::null_mut();
        // SAFETY: the handle lives for ever; it writes one handle.
        self.check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(stream.0, &mut graph) })?;
        Ok(Graph(graph))
    }

    /// Can it say which node was noted last, and be told which nodes the next one is behind?
    pub fn tells_of_captures(self) -> bool {
        self.context.driver_version >= CAPTURE_INFO_VERSION
    }

    /// What is noted next on a stream that captures is behind these nodes, and behind no others.
    pub fn stream_set_behind(self, stream: Stream, nodes: &[GraphNode]) -> Result<(), DeviceError> {
        let set = sys::CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES;
        let mut raw: Vec<sys::CUgraphNode> = nodes.iter().map(|node| node.0).collect();
        // None may be named twice.
        raw.sort_unstable();
        raw.dedup();
        // SAFETY: the handle lives for ever; so many nodes are there, and they are of the graph that is being captured.
        // Without data of their own edges are full dependencies.
        let code = unsafe {
            let (at, count) = (raw.as_mut_ptr(), raw.len());
            sys::cuStreamUpdateCaptureDependencies_v2(stream.0, at, ptr::null(), count, set as u32)
        };
        self.check("cuStreamUpdateCaptureDependencies", code)
    }

    /// The node that was noted last on a stream that captures.
    pub fn stream_last_captured(self, stream: Stream) -> Result<GraphNode, DeviceError> {
        if !self.tells_of_captures() {
            return Err(SetupError::old_driver(self.context.driver_version, CAPTURE_INFO_VERSION));
        }
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let (mut nodes, mut edges, mut count) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the handle lives for ever; it writes a status, two addresses and a number, and may leave out the others.
        let code = unsafe {
            sys::cuStreamGetCaptureInfo_v3(
                stream.0,
                &mut status,
                ptr::null_mut(),
                ptr::null_mut(),
                &mut nodes,
                &mut edges,
                &mut count,
            )
        };
        self.check("cuStreamGetCaptureInfo", code)?;
        if status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE || count != 1 {
            return Err(DeviceError::Driver { call: "cuStreamGetCaptureInfo", code: count as i64 });
        }
        // SAFETY: so many nodes are there, until the next call for this stream.
        Ok(GraphNode(unsafe { *nodes }))
    }

    /// Makes a graph that can be launched. The other one stays as it is.
    pub fn graph_instantiate(self, graph: Graph) -> Result<GraphExec, DeviceError> {
        let mut executable = ptr::null_mut();
        // SAFETY: the graph is alive; it writes one handle.
        let code = unsafe { sys::cuGraphInstantiateWithFlags(&mut executable, graph.0, 0) };
        self.check("cuGraphInstantiate", code)?;
        Ok(GraphExec(executable))
    }

    /// Changes how later launches of an executable graph launch one of its kernels.
    ///
    /// # Safety
    /// - The node is of the graph that the executable was made of, which is alive; nobody else changes or launches it now.
    /// - As of [`Driver::launch_kernel`].
    pub unsafe fn graph_exec_set_kernel(
        self,
        executable: GraphExec,
        node: GraphNode,
        function: Function,
        [grid, block]: [[u32; 3]; 2],
        shared_bytes: u32,
        args: &[u8],
    ) -> Result<(), DeviceError> {
        let mut extra = Extra::new(args);
        let mut extra = extra.list();
        let params = sys::CUDA_KERNEL_NODE_PARAMS {
            func: function.0,
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: block[0],
            blockDimY: block[1],
            blockDimZ: block[2],
            sharedMemBytes: shared_bytes,
            kernelParams: ptr::null_mut(),
            extra: extra.as_mut_ptr(),
            kern: ptr::null_mut(),
            ctx: ptr::null_mut(),
        };
        // SAFETY: by the contract; the parameters are copied before the call returns.
        let code = unsafe { sys::cuGraphExecKernelNodeSetParams_v2(executable.0, node.0, &params) };
        self.check("cuGraphExecKernelNodeSetParams", code)
    }

    /// Launches a graph, behind what is on the stream and behind its own former launches.
    ///
    /// # Safety
    /// - It is alive until the launch is complete; what its nodes reach is as for [`Driver::launch_kernel`].
    #[inline]
    pub unsafe fn graph_launch(self, executable: GraphExec, stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: by the contract.
        self.check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(executable.0, stream.0) })
    }

    /// Destroys a graph that can't be launched.
    ///
    /// # Safety
    /// - It is alive, and nobody uses it or its nodes any more.
    pub unsafe fn graph_destroy(self, graph: Graph) -> Result<(), DeviceError> {
        // SAFETY: by the contract.
        self.check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(graph.0) })
    }

    /// Destroys a graph that can be launched.
    ///
    /// # Safety
    /// - It is alive, no launch of it is in flight, and nobody uses it any more.
    pub unsafe fn graph_exec_destroy(self, executable: GraphExec) -> Result<(), DeviceError> {
        // SAFETY: by the contract.
        self.check("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(executable.0) })
    }
}
