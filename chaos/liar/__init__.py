"""`chaos liar`: workers that lie about results, alone and together."""
